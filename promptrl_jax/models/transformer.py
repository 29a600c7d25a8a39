"""Causal language model of the Llama shape: RMSNorm, RoPE, GQA, SwiGLU.

Linen is used as `init` / `apply` only. Layers are stacked by one `nn.scan`, so
every layer parameter has a leading axis L. A full forward returns the keys and
values of all layers, from which `sampling` builds its cache; `decode_step` runs
one token against such a cache, cache in, cache out.
"""

from __future__ import annotations

import operator
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from promptrl_jax.models.cache import LayerCache
from promptrl_jax.models.config import TransformerConfig

_NEG_INF = -1e30


def rope_angles(
  positions: jax.Array, head_size: int, theta: float
) -> tuple[jax.Array, jax.Array]:
  """Cosine and sine [..., H/2] of the rotary embedding at `positions` [...]."""
  exponent = jnp.arange(0, head_size, 2, dtype=jnp.float32) / head_size
  angles = positions[..., None].astype(jnp.float32) * theta**-exponent
  return jnp.cos(angles), jnp.sin(angles)


def apply_rope(x: jax.Array, cos: jax.Array, sin: jax.Array) -> jax.Array:
  """Rotates the two halves of `x` [..., H] (the Hugging Face convention)."""
  first, second = jnp.split(x, 2, axis=-1)
  return jnp.concatenate(
    [first * cos - second * sin, second * cos + first * sin], axis=-1
  )


class RMSNorm(nn.Module):
  """x / rms(x) * scale, over the last axis (arXiv 1910.07467)."""

  eps: float

  @nn.compact
  def __call__(self, x: jax.Array) -> jax.Array:
    scale = self.param('scale', nn.initializers.ones, (x.shape[-1],))
    mean_square = jnp.mean(jnp.square(x), axis=-1, keepdims=True)
    return x * jax.lax.rsqrt(mean_square + self.eps) * scale


def attend(
  queries: jax.Array, keys: jax.Array, values: jax.Array, mask: jax.Array
) -> jax.Array:
  """Grouped-query attention.

  Args:
    queries: [B, T, K, G, H], already scaled.
    keys, values: [B, S, K, H].
    mask: bool [B, T, S].

  Returns:
    [B, T, K, G, H].
  """
  b, t, k, g, h = queries.shape
  # Canonical matrix products over [B*K]: the contraction written directly took
  # 2.4 times as long on CPU, forward and backward.
  queries = jnp.transpose(queries, (0, 2, 3, 1, 4)).reshape(b * k, g * t, h)
  keys = jnp.swapaxes(keys, 1, 2).reshape(b * k, -1, h)
  values = jnp.swapaxes(values, 1, 2).reshape(b * k, -1, h)
  scores = jnp.einsum('bqh,bsh->bqs', queries, keys).reshape(b, k, g, t, -1)
  scores += jnp.where(mask, 0.0, _NEG_INF)[:, None, None]
  weights = jax.nn.softmax(scores, axis=-1).reshape(b * k, g * t, -1)
  attended = jnp.einsum('bqs,bsh->bqh', weights, values)
  return jnp.transpose(attended.reshape(b, k, g, t, h), (0, 3, 1, 2, 4))


def dense(x: jax.Array, kernel: jax.Array) -> jax.Array:
  """`x` [..., in] times `kernel` [in, ...], flat: [..., out].

  One 2-D product: with leading axes kept, the gradient of the kernel ran at
  half the rate on CPU.
  """
  size = x.shape[-1]
  flat = x.reshape(-1, size) @ kernel.reshape(size, -1)
  return flat.reshape(*x.shape[:-1], -1)


class Block(nn.Module):
  """Pre-norm attention and SwiGLU, both with a residual.

  The projections of queries, keys and values are one matrix [D, K, G + 2, H]:
  per key-value head its G query heads, its key and its value. One product
  instead of three; splitting over K keeps a head's group on one device.
  """

  config: TransformerConfig

  def setup(self):
    c = self.config
    # Residual branches start small, so that depth does not scale the stream.
    normal, small = 0.02, 0.02 / (2 * c.num_layers) ** 0.5
    init = nn.initializers.normal
    self.attention_norm = RMSNorm(c.norm_eps)
    self.mlp_norm = RMSNorm(c.norm_eps)
    self.qkv = self.param(
      'qkv',
      init(normal),
      (c.hidden_size, c.num_kv_heads, c.group_size + 2, c.head_size),
    )
    self.out = self.param(
      'out', init(small), (c.num_heads * c.head_size, c.hidden_size)
    )
    self.gate_up = self.param(
      'gate_up', init(normal), (c.hidden_size, 2, c.mlp_size)
    )
    self.down = self.param('down', init(small), (c.mlp_size, c.hidden_size))

  def _project(self, x, cos, sin):
    """Queries [B, T, K, G, H], keys and values [B, T, K, H]."""
    c = self.config
    flat = dense(self.attention_norm(x), self.qkv)
    shape = (c.num_kv_heads, c.group_size + 2, c.head_size)
    qkv = flat.reshape(*x.shape[:-1], *shape)
    rotated = apply_rope(
      qkv[..., :-1, :], cos[..., None, None, :], sin[..., None, None, :]
    )
    queries = rotated[..., :-1, :] * c.head_size**-0.5
    return queries, rotated[..., -1, :], qkv[..., -1, :]

  def _finish(self, x, attended):
    """Output projection and MLP; `attended` is [B, T, K, G, H]."""
    x = x + dense(attended.reshape(*x.shape[:-1], -1), self.out)
    hidden = dense(self.mlp_norm(x), self.gate_up)
    gate, up = jnp.split(hidden, 2, axis=-1)
    return x + dense(nn.silu(gate) * up, self.down)

  def __call__(self, x, cos, sin, mask):
    """Full sequence: `x` [B, T, D], `mask` [B, T, T] -> x, (keys, values)."""
    queries, keys, values = self._project(x, cos, sin)
    return self._finish(x, attend(queries, keys, values, mask)), (keys, values)

  def decode_step(self, x, cos, sin, cache: LayerCache, slot, mask):
    """One token: `x` [B, 1, D], `mask` [B, S]; writes slot `slot`."""
    queries, keys, values = self._project(x, cos, sin)
    cache = cache.write(keys, values, slot)
    attended = cache.attend(queries[:, 0], mask)
    return self._finish(x, attended[:, None]), cache


class Transformer(nn.Module):
  """Tokens to hidden states to logits, with tied embeddings."""

  config: TransformerConfig

  def setup(self):
    c = self.config
    self.embedding = self.param(
      'embedding', nn.initializers.normal(0.02), (c.vocab_size, c.hidden_size)
    )
    self.layers = nn.scan(
      Block,
      variable_axes={'params': 0},
      split_rngs={'params': True},
      in_axes=(nn.broadcast,) * 3,  # pyright: ignore[reportArgumentType]
      length=c.num_layers,
    )(c)
    self.final_norm = RMSNorm(c.norm_eps)

  def __call__(
    self, tokens: jax.Array, positions: jax.Array, mask: jax.Array
  ) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    """Runs a full sequence.

    Args:
      tokens: int [B, T].
      positions: int [B, T], position of each token in its own text.
      mask: bool [B, T, T], whether query t may attend to key s.

    Returns:
      Hidden states [B, T, D] after the last norm, and the keys and values of
      all layers, each [L, B, T, K, H].
    """
    c = self.config
    cos, sin = rope_angles(positions, c.head_size, c.rope_theta)
    x, keys_values = self.layers(self.embedding[tokens], cos, sin, mask)
    return self.final_norm(x), keys_values

  def logits(self, hidden: jax.Array) -> jax.Array:
    """Projects hidden states [..., D] on the vocabulary, [..., V]."""
    return dense(hidden, self.embedding.T)


def unstack_layers(params: Any, num_layers: int) -> list[Any]:
  """The parameters of each layer; done once, outside the decode loop."""
  layers = params['params']['layers']
  return [
    jax.tree.map(operator.itemgetter(i), layers) for i in range(num_layers)
  ]


def decode_step(
  config: TransformerConfig,
  params: Any,
  layers: list[Any],
  tokens: jax.Array,
  positions: jax.Array,
  cache: tuple[LayerCache, ...],
  slot: jax.Array,
  mask: jax.Array,
) -> tuple[jax.Array, tuple[LayerCache, ...]]:
  """Logits of the token after `tokens`, and the cache with `tokens` in it.

  The loop over layers is unrolled: each layer updates a buffer of its own in
  place, where a scan would copy the stacked cache once per token.

  Args:
    config: the model.
    params: its parameters.
    layers: `unstack_layers(params, L)`.
    tokens: int [B], the last token of each row.
    positions: int [B], their positions.
    cache: one `LayerCache` per layer.
    slot: scalar int, where their keys and values go.
    mask: bool [B, S], slots that may be attended to, `slot` included.

  Returns:
    Logits [B, V] and the new cache.
  """
  model, block = Transformer(config), Block(config)
  cos, sin = rope_angles(
    positions[:, None], config.head_size, config.rope_theta
  )
  x = params['params']['embedding'][tokens][:, None]
  new_cache = []
  for layer, layer_cache in zip(layers, cache, strict=True):
    x, layer_cache = block.apply(
      {'params': layer}, x, cos, sin, layer_cache, slot, mask,
      method=Block.decode_step,
    )  # fmt: skip
    new_cache.append(layer_cache)
  final_norm = RMSNorm(config.norm_eps)
  hidden = final_norm.apply({'params': params['params']['final_norm']}, x[:, 0])
  logits: Any = model.apply(params, hidden, method=Transformer.logits)
  return logits, tuple(new_cache)
