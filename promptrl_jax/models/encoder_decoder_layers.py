"""The layers of T5: pre-norm attention, cross-attention and MLP.

Unlike in `transformer`, scores are not scaled, positions enter as a bias that
all layers share, and every head has keys and values of its own.
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

_ones = nn.initializers.ones


def rms_norm(x: jax.Array, scale: jax.Array, eps: float) -> jax.Array:
  """x / rms(x) * scale over the last axis, in float32 (arXiv 1910.07467)."""
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
  """softmax(q k + bias) v, with the softmax in float32.

  Args:
    queries: [B, T, Q, H].
    keys, values: [B, S, Q, H].
    bias: [Q, T, S], or a number.
    mask: bool [B, T, S], or [B, S] where it is the same for all queries.

  Returns:
    [B, T, Q * H].
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
  """Self-attention and MLP.

  The projections are one matrix [D, Q, 3, H]: per head its query, its key and
  its value, so that splitting over Q keeps a head on one device. The first
  matrix of the MLP is [D, 2, F] where it is gated, else [D, 1, F].
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
    """Queries, keys and values, [B, T, Q, H] each."""
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
    """`x` [B, P, D], `bias` [Q, P, P], `mask` as `attend` -> x, nothing."""
    attended = attend(*self._project(x), bias, mask)
    return self._mlp(x + adapted_dense(self, attended, 'out')), None


class DecoderLayer(EncoderLayer):
  """Self-attention, attention to the encoder's output, and MLP."""

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
    """[B, T, Q, H]."""
    flat = adapted_dense(self, self._norm(x, self.cross_norm), 'cross_query')
    return self._by_head(flat, 1)[..., 0, :]

  def cross_keys_values(
    self, encoded: jax.Array
  ) -> tuple[jax.Array, jax.Array]:
    """Keys and values [B, P, Q, H] of the encoder's output [B, P, D]."""
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
    """Full sequences; rows that share a prompt are neighbours.

    Args:
      x: [B * G, T, D].
      encoded: [B, P, D], output of the encoder.
      bias: [Q, T, T], very negative for keys that lie ahead.
      mask: bool [B, P] or [B, G * T, P], places of the encoder that tokens see.
      own_mask: bool [B * G, T] or [B * G, T, T], those of the sequence.

    Returns:
      [B * G, T, D], and nothing.
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
    """One token of each row; rows that share a prompt are neighbours.

    Args:
      x: [B * G, 1, D].
      bias: [Q, S], or [B * G, Q, S] for rows at slots of their own.
      cache: keys and values of the tokens before, S slots of B * G rows.
      cross: those of the prompts, B rows.
      slot: int, where the token's keys and values go: a scalar, or [B * G].
      mask: bool [B * G, S], slots that may be attended to, `slot` included.
      prompt_mask: bool [B, slots of `cross`].

    Returns:
      [B * G, 1, D] and the new cache.
    """
    queries, keys, values = self._project(x)
    cache = cache.write(keys, values, slot)
    attended = cache.attend(queries[:, 0, :, None], mask, bias)
    x = x + adapted_dense(self, attended.reshape(*x.shape[:2], -1), 'out')
    # The rows of a prompt are to its cache what a group of heads is to its key.
    queries = self._cross_queries(x)
    grouped = queries.reshape(prompt_mask.shape[0], -1, *queries.shape[2:])
    attended = cross.attend(jnp.swapaxes(grouped, 1, 2), prompt_mask)
    attended = jnp.swapaxes(attended, 1, 2).reshape(*x.shape[:2], -1)
    return self._mlp(x + adapted_dense(self, attended, 'cross_out')), cache


def _normal(stddev: float) -> Callable[..., Any]:
  return nn.initializers.normal(stddev)


def _query_first(stddev: float) -> Callable[..., Any]:
  """Queries smaller by sqrt(H), since scores are not scaled."""

  def init(key: jax.Array, shape: tuple[int, ...], dtype: Any = jnp.float32):
    factor = jnp.array([shape[-1] ** -0.5, 1.0, 1.0], dtype)[:, None]
    return stddev * factor * jax.random.normal(key, shape, dtype)

  return init
