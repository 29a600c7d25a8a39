"""The causal transformer of all supported model families.

One `nn.scan` stacks the layers, so every layer parameter has a leading axis L.
`causal_steps` runs the layers one by one for decoding.
"""

from __future__ import annotations

import functools
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from promptrl_jax.models import attention, native, rope
from promptrl_jax.models.cache import LayerCache
from promptrl_jax.models.config import TransformerConfig
from promptrl_jax.models.kernels import (
  StoredKernel,
  adapted_dense,
  dense,
  kernel_of,
  rows_of,
  threads_of,
)
from promptrl_jax.parallel import sharding

ROWS = ('data', 'fsdp')  # mesh axes that split rows of tokens
_ACTIVATIONS = {
  'silu': nn.silu,
  'gelu': functools.partial(nn.gelu, approximate=False),
  'gelu_tanh': nn.gelu,
}


class RMSNorm(nn.Module):
  """x / rms(x) * (offset + scale), over the last axis (arXiv 1910.07467).

  With `threads`, as of `StoredKernel`, `cpp/norm.cc` computes it if it can.
  """

  eps: float
  offset: float = 0.0
  threads: int = 0

  @nn.compact
  def __call__(self, x: jax.Array) -> jax.Array:
    init = nn.initializers.constant(1.0 - self.offset)
    scale = self.param('scale', init, (x.shape[-1],))
    if self.threads and native.fits(x.shape[-1], x.dtype):
      factor = self.offset + scale.astype(jnp.float32)
      eps = np.float32(self.eps)
      return native.call('rms_norm', x.shape, 1, x, factor, eps=eps)
    wide = x.astype(jnp.float32)
    mean_square = jnp.mean(jnp.square(wide), axis=-1, keepdims=True)
    normed = wide * jax.lax.rsqrt(mean_square + self.eps)
    if self.offset:  # A 16-bit sum would lose most of a small scale.
      return (normed * (self.offset + scale)).astype(x.dtype)
    return normed.astype(x.dtype) * scale.astype(x.dtype)


class LayerNorm(nn.Module):
  """(x - mean(x)) / std(x) * scale + bias (arXiv 1607.06450)."""

  eps: float

  @nn.compact
  def __call__(self, x: jax.Array) -> jax.Array:
    size = (x.shape[-1],)
    scale = self.param('scale', nn.initializers.ones, size)
    bias = self.param('bias', nn.initializers.zeros, size)
    wide = x.astype(jnp.float32)
    wide -= jnp.mean(wide, axis=-1, keepdims=True)
    variance = jnp.mean(jnp.square(wide), axis=-1, keepdims=True)
    normed = wide * jax.lax.rsqrt(variance + self.eps)
    return (normed * scale + bias).astype(x.dtype)


def norm(config: TransformerConfig, threads: int = 0) -> nn.Module:
  """Returns the norm layer of a config; `threads` as of `RMSNorm`."""
  if config.norm == 'layer':
    return LayerNorm(config.norm_eps)
  return RMSNorm(config.norm_eps, config.norm_offset, threads)


class Block(nn.Module):
  """One layer: pre-norm attention and MLP, both with a residual connection.

  The projections of queries, keys and values are fused into one kernel
  [D, K, U + 2, H], which holds for each key-value head its U query heads, its
  key and its value. One matrix product replaces three, and splitting over K
  keeps the query heads of a key-value head on one device.
  """

  config: TransformerConfig
  mesh: Mesh | None = None

  def setup(self):
    c = self.config
    # Output projections start small, so that the variance of the residual
    # stream does not grow with depth.
    normal, small = 0.02, 0.02 / (2 * c.num_layers) ** 0.5
    zeros = nn.initializers.zeros
    heads = (c.num_kv_heads, c.group_size + 2, c.head_size)
    parts = 2 if c.is_gated else 1
    inner = c.num_heads * c.head_size
    self.qkv = self._kernel('qkv', normal, (c.hidden_size, *heads), 1)
    threads = threads_of(self.qkv)
    self.attention_norm = norm(c, threads)
    self.mlp_norm = norm(c, threads)
    if c.post_norms:
      self.attention_post_norm = norm(c, threads)
      self.mlp_post_norm = norm(c, threads)
    self.out = self._kernel('out', small, (inner, c.hidden_size), 0)
    self.gate_up = self._kernel(
      'gate_up', normal, (c.hidden_size, parts, c.mlp_size), 2
    )
    self.down = self._kernel('down', small, (c.mlp_size, c.hidden_size), 0)
    if c.qkv_bias:
      self.qkv_bias = self.param('qkv_bias', zeros, heads)
    if c.out_bias:
      self.out_bias = self.param('out_bias', zeros, (c.hidden_size,))
    if c.mlp_bias:
      self.gate_up_bias = self.param('gate_up_bias', zeros, (parts, c.mlp_size))
      self.down_bias = self.param('down_bias', zeros, (c.hidden_size,))
    if c.qk_norm:
      self.q_norm = RMSNorm(c.norm_eps, c.norm_offset, threads)
      self.k_norm = RMSNorm(c.norm_eps, c.norm_offset, threads)

  def _kernel(self, name, scale, shape, split):
    """Returns a kernel that is split over `tensor` only, along axis `split`."""
    kernel = kernel_of(self, name, nn.initializers.normal(scale), shape)
    return sharding.pin(kernel, self.mesh, *[None] * split, 'tensor')

  def _qkv(self, x):
    """Returns the heads of `rope.heads`, [B, S, K, U + 2, H]."""
    c = self.config
    flat = adapted_dense(self, self.attention_norm(x), 'qkv')
    shape = (c.num_kv_heads, c.group_size + 2, c.head_size)
    qkv = flat.reshape(*x.shape[:-1], *shape)
    qkv = sharding.pin(qkv, self.mesh, ROWS, None, 'tensor')
    if c.qkv_bias:
      qkv += self.qkv_bias.astype(x.dtype)
    if c.qk_norm:
      parts = (
        self.q_norm(qkv[..., :-2, :]),
        self.k_norm(qkv[..., -2:-1, :]),
        qkv[..., -1:, :],
      )
      qkv = jnp.concatenate(parts, axis=-2)
    return qkv

  def _gate_up(self, x):
    """Returns the MLP's one or, if gated, two projections [B, S, F]."""
    c = self.config
    count = 2 if c.is_gated else 1
    if self.mesh is None:
      flat = adapted_dense(self, x, 'gate_up')
      parts = jnp.split(flat, count, axis=-1)
    else:
      # Interleaved parts can be split over `tensor`; concatenated ones cannot.
      flat = adapted_dense(self, x, 'gate_up', interleaved=True)
      flat = sharding.pin(flat, self.mesh, ROWS, None, 'tensor')
      flat = flat.reshape(*x.shape[:-1], c.mlp_size, count)
      parts = [flat[..., i] for i in range(count)]
    if c.mlp_bias:
      bias = self.gate_up_bias.astype(x.dtype)
      parts = [part + b for part, b in zip(parts, bias, strict=True)]
    return parts

  def _finish(self, x, attended):
    """Applies output projection and MLP; `attended` is [B, S, K, U, H]."""
    c = self.config
    projected = adapted_dense(self, attended.reshape(*x.shape[:-1], -1), 'out')
    if c.out_bias:
      projected += self.out_bias.astype(x.dtype)
    if c.post_norms:
      projected = self.attention_post_norm(projected)
    x = sharding.pin(x + projected, self.mesh, ROWS)
    parts = self._gate_up(self.mlp_norm(x))
    hidden = _ACTIVATIONS[c.activation](parts[0])
    if c.is_gated:
      hidden *= parts[1]
    projected = adapted_dense(self, hidden, 'down')
    if c.mlp_bias:
      projected += self.down_bias.astype(x.dtype)
    if c.post_norms:
      projected = self.mlp_post_norm(projected)
    return sharding.pin(x + projected, self.mesh, ROWS)

  def __call__(self, x, angles, mask, is_global=None, before=None):
    """Runs the layer on x [B, S, D]; also returns its keys and values.

    Those of the tokens `before` x, [B, any, K, H], come first.
    """
    angles = attention.of_layer(angles, is_global)
    mask = attention.of_layer(mask, is_global)
    queries, keys, values = rope.heads(
      self._qkv(x), angles, self.config.attention_scale
    )
    if self.config.kv_cache == 'bfloat16':  # What decode steps will read.
      keys, values = attention.rounded(keys), attention.rounded(values)
    if before is not None:
      keys = jnp.concatenate([before[0], keys], axis=1)
      values = jnp.concatenate([before[1], values], axis=1)
    attend = attention.attend_fn(self.config, threads_of(self.qkv))
    attended = attend(queries, keys, values, mask)
    return self._finish(x, attended), (keys, values)

  def decode_step(self, x, angles, cache: LayerCache, slot, mask):
    """Runs the layer on one token per row; arguments as in `causal_steps`."""
    attended, cache = cache.step(
      self._qkv(x)[:, 0],
      angles,
      self.config.attention_scale,
      slot,
      mask,
      threads_of(self.qkv),
    )
    return self._finish(x, attended[:, None]), cache


class Transformer(nn.Module):
  """A causal language model, from tokens to hidden states to logits.

  Attributes:
    mesh: mesh that splits the parameters, or None. Activations are constrained
      to it: rows of tokens are split over `data` and `fsdp`, heads and hidden
      units over `tensor`.
  """

  config: TransformerConfig
  mesh: Mesh | None = None

  def setup(self):
    c = self.config
    init = nn.initializers.normal(0.02)
    self.embedding = kernel_of(
      self, 'embedding', init, (c.vocab_size, c.hidden_size)
    )
    if c.positions == 'learned':
      self.position_embedding = self.param(
        'position_embedding', init, (c.max_positions, c.hidden_size)
      )
    if not c.tie_embeddings:
      shape = (c.hidden_size, c.vocab_size)
      self.lm_head = kernel_of(self, 'lm_head', init, shape)
    block = nn.remat(Block, prevent_cse=False) if c.remat else Block
    self.layers = nn.scan(
      block,
      variable_axes={'params': 0, 'lora': 0},
      split_rngs={'params': True},
      in_axes=(nn.broadcast, nn.broadcast, 0),  # pyright: ignore[reportArgumentType]
      length=c.num_layers,
      unroll=c.unroll,
    )(c, self.mesh)
    self.final_norm = norm(c)

  def embed(self, tokens: jax.Array, positions: jax.Array) -> jax.Array:
    """Returns the input of the first layer, [..., D]."""
    table = sharding.pin(self.embedding, self.mesh, 'tensor')
    x = sharding.pin(rows_of(table, tokens), self.mesh, ROWS)
    if self.config.positions == 'learned':
      x = x + rows_of(self.position_embedding, positions)
    x = x.astype(self.config.dtype)
    scale = self.config.embedding_scale
    return x if scale == 1.0 else x * jnp.asarray(scale, x.dtype)

  def __call__(
    self, tokens: jax.Array, positions: jax.Array, mask: attention.Mask
  ) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    """Runs full sequences.

    Args:
      positions: int [B, S], position of each token in its own text.
      mask: bool [B, S, S], whether query i may attend to key j, as from
        `attention.causal_mask`; or an `attention.SharedPrefix`. A model with
        `global_every` takes both masks, `attention.ByLayer`.

    Returns:
      Hidden states [B, S, D] after the last norm, and the keys and values of
      all layers, each [L, B, S, K, H].
    """
    x = self.embed(tokens, positions)
    c, is_global = self.config, None
    if c.global_every is not None:
      is_global = jnp.array([c.is_global(i) for i in range(c.num_layers)])
    x, keys_values = self.layers(
      x, rope.of_positions(c, positions), mask, is_global
    )
    return self.final_norm(x), keys_values

  def logits(self, hidden: jax.Array) -> jax.Array:
    """Returns the logits of hidden states [..., D]: float32 [..., V]."""
    head = self.embedding if self.config.tie_embeddings else self.lm_head
    if self.config.tie_embeddings and not isinstance(head, StoredKernel):
      head = StoredKernel(head)
    return dense(hidden, head, jnp.float32)


def shapes(config: TransformerConfig) -> Any:
  """Returns the parameter tree with `jax.ShapeDtypeStruct` leaves."""
  tokens = jax.ShapeDtypeStruct((1, 2), jnp.int32)
  mask = attention.by_layer(
    config, lambda _: jax.ShapeDtypeStruct((1, 2, 2), jnp.bool_)
  )
  init = Transformer(config).init
  key = jax.eval_shape(jax.random.key, 0)  # A real one would be compiled.
  return jax.eval_shape(init, key, tokens, tokens, mask)
