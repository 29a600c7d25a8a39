"""The layers of T5: pre-norm attention, cross-attention and MLP.

Unlike in `transformer`, attention scores are not scaled, positions enter as a
bias that all layers share, and every query head has its own keys and values.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from promptrl_jax.models.cache import LayerCache
from promptrl_jax.models.encoder_decoder_config import EncoderDecoderConfig
from promptrl_jax.models.kernels import adapted_dense, kernel_of

NEG_INF = -1e30

_normal, _ones = nn.initializers.normal, nn.initializers.ones


def rms_norm(x: jax.Array, scale: jax.Array, eps: float) -> jax.Array:
  """Computes RMSNorm over the last axis in float32 (arXiv 1910.07467)."""
  wide = x.astype(jnp.float32)
  mean_square = jnp.mean(jnp.square(wide), axis=-1, keepdims=True)
  return (wide * jax.lax.rsqrt(mean_square + eps) * scale).astype(x.dtype)


def attend(
  queries: jax.Array,
  keys: jax.Array,
  values: jax.Array,
  bias: jax.Array | float,
  mask: jax.Array,
) -> jax.Array:
  """Computes softmax(q k + bias) v, with the softmax in float32.

  Args:
    queries: [B, C, Q, H].
    keys, values: [B, S, Q, H].
    bias: [Q, C, S], or a number.
    mask: bool [B, C, S], or [B, S] if it is the same for all queries.
  """
  queries, keys, values = (
    jnp.swapaxes(x, 1, 2) for x in (queries, keys, values)
  )
  scores = jnp.matmul(
    queries, jnp.swapaxes(keys, 2, 3), preferred_element_type=jnp.float32
  )
  mask = mask[:, None] if mask.ndim == 3 else mask[:, None, None]
  scores = jnp.where(mask, scores + bias, NEG_INF)
  weights = jax.nn.softmax(scores, axis=-1).astype(values.dtype)
  attended = jnp.swapaxes(jnp.matmul(weights, values), 1, 2)
  return attended.reshape(*attended.shape[:2], -1)


class EncoderLayer(nn.Module):
  """One layer of the encoder: self-attention and MLP.

  The projections of queries, keys and values are fused into one kernel
  [D, Q, 3, H]; splitting it over Q keeps a head on one device. The first kernel
  of the MLP is [D, 2, F] if the MLP is gated, else [D, 1, F].
  """

  config: EncoderDecoderConfig

  def setup(self):
    c = self.config
    d, q, h = c.hidden_size, c.num_heads, c.head_size
    self.attention_norm = self.param('attention_norm', _ones, (d,))
    kernel = functools.partial(kernel_of, self)
    self.qkv = kernel('qkv', _query_first(d**-0.5), (d, q, 3, h))
    self.out = kernel('out', _normal((q * h) ** -0.5), (q * h, d))
    self.mlp_norm = self.param('mlp_norm', _ones, (d,))
    self.gate_up = kernel(
      'gate_up', _normal(d**-0.5), (d, 1 + c.is_gated, c.mlp_size)
    )
    self.down = kernel('down', _normal(c.mlp_size**-0.5), (c.mlp_size, d))

  def _norm(self, x: jax.Array, scale: jax.Array) -> jax.Array:
    return rms_norm(x, scale, self.config.norm_eps)

  def _project(self, x: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Returns queries, keys and values, each [B, S, Q, H]."""
    flat = adapted_dense(self, self._norm(x, self.attention_norm), 'qkv')
    qkv = self._by_head(flat, 3)
    return qkv[..., 0, :], qkv[..., 1, :], qkv[..., 2, :]

  def _by_head(self, flat: jax.Array, parts: int) -> jax.Array:
    c = self.config
    return flat.reshape(*flat.shape[:-1], c.num_heads, parts, c.head_size)

  def _mlp(self, x: jax.Array) -> jax.Array:
    hidden = adapted_dense(self, self._norm(x, self.mlp_norm), 'gate_up')
    if self.config.is_gated:
      gate, hidden = jnp.split(hidden, 2, axis=-1)
      hidden = nn.gelu(gate, approximate=True) * hidden
    else:
      hidden = nn.relu(hidden)
    return x + adapted_dense(self, hidden, 'down')

  def __call__(
    self, x: jax.Array, bias: jax.Array, mask: jax.Array
  ) -> tuple[jax.Array, None]:
    """Runs x [B, P, D] with a position bias [Q, P, P], as in `attend`."""
    attended = attend(*self._project(x), bias, mask)
    return self._mlp(x + adapted_dense(self, attended, 'out')), None


class DecoderLayer(EncoderLayer):
  """One layer of the decoder: self-attention, cross-attention and MLP."""

  def setup(self):
    super().setup()
    c = self.config
    d, q, h = c.hidden_size, c.num_heads, c.head_size
    self.cross_norm = self.param('cross_norm', _ones, (d,))
    kernel = functools.partial(kernel_of, self)
    self.cross_query = kernel(
      'cross_query', _normal((d * h) ** -0.5), (d, q, h)
    )
    self.cross_kv = kernel('cross_kv', _normal(d**-0.5), (d, q, 2, h))
    self.cross_out = kernel('cross_out', _normal((q * h) ** -0.5), (q * h, d))

  def _cross_queries(self, x: jax.Array) -> jax.Array:
    """Returns the queries of cross-attention, [B, C, Q, H]."""
    flat = adapted_dense(self, self._norm(x, self.cross_norm), 'cross_query')
    return self._by_head(flat, 1)[..., 0, :]

  def cross_keys_values(
    self, encoded: jax.Array
  ) -> tuple[jax.Array, jax.Array]:
    """Returns keys and values [B, P, Q, H] of hidden states [B, P, D]."""
    flat = adapted_dense(self, encoded, 'cross_kv')
    kv = self._by_head(flat, 2)
    return kv[..., 0, :], kv[..., 1, :]

  def __call__(
    self,
    x: jax.Array,
    encoded: jax.Array,
    bias: jax.Array,
    mask: jax.Array,
    own_mask: jax.Array,
  ) -> tuple[jax.Array, None]:
    """Runs the layer on full sequences; the G rows of a prompt are adjacent.

    Args:
      bias: [Q, C, C], position bias, very negative for later keys.
      mask: bool [B, P] or [B, G * C, P], mask of cross-attention.
      own_mask: bool [B * G, C] or [B * G, C, C], mask of self-attention.
    """
    attended = attend(*self._project(x), bias, own_mask)
    x = x + adapted_dense(self, attended, 'out')
    queries = self._cross_queries(x)
    queries = queries.reshape(len(encoded), -1, *queries.shape[2:])
    attended = attend(queries, *self.cross_keys_values(encoded), 0.0, mask)
    attended = attended.reshape(*x.shape[:2], -1)
    return self._mlp(x + adapted_dense(self, attended, 'cross_out')), None

  def decode_step(
    self,
    x: jax.Array,
    bias: jax.Array,
    cache: LayerCache,
    cross: LayerCache,
    slot: jax.Array,
    mask: jax.Array,
    prompt_mask: jax.Array,
  ) -> tuple[jax.Array, LayerCache]:
    """Runs the layer on one token per row; the G rows of a prompt are adjacent.

    Args:
      bias: [Q, M], or [B * G, Q, M] if the cache slot differs between rows.
      slot: int scalar or [B * G], the cache slot of the token.
      mask: bool [B * G, M], cache slots that may be attended to, including
        `slot`.
      prompt_mask: bool [B, cache slots of `cross`].
    """
    queries, keys, values = self._project(x)
    cache = cache.write(keys[:, 0], values[:, 0], slot)
    attended = cache.attend(queries[:, 0, :, None], mask, bias)
    x = x + adapted_dense(self, attended.reshape(*x.shape[:2], -1), 'out')
    # The G rows of a prompt share its cache as the query heads of a group share
    # a key-value head.
    queries = self._cross_queries(x)
    grouped = queries.reshape(prompt_mask.shape[0], -1, *queries.shape[2:])
    attended = cross.attend(jnp.swapaxes(grouped, 1, 2), prompt_mask)
    attended = jnp.swapaxes(attended, 1, 2).reshape(*x.shape[:2], -1)
    return self._mlp(x + adapted_dense(self, attended, 'cross_out')), cache


def _query_first(stddev: float) -> Callable[..., Any]:
  """Initialises queries smaller by sqrt(H), since scores are not scaled."""

  def init(key: jax.Array, shape: tuple[int, ...], dtype: Any = jnp.float32):
    factor = jnp.array([shape[-1] ** -0.5, 1.0, 1.0], dtype)[:, None]
    return stddev * factor * jax.random.normal(key, shape, dtype)

  return init
