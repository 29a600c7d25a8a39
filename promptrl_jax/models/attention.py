"""Attention over full sequences, and attention masks."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from promptrl_jax.models import native
from promptrl_jax.models.config import TransformerConfig

_NEG_INF = -1e30


@struct.dataclass
class SharedPrefix:
  """The attention mask of packed rows, in which completions share prompts.

  A packed row of S = P + J * C tokens starts with P prompt tokens, which may
  hold several prompts. J lanes of C completion tokens follow, and each lane
  holds one or more completions one after another. The tokens of a prompt are
  processed once for all of its completions. A completion never attends to
  another lane, so most of the S x S scores are not computed.

  Attributes:
    prompts: bool [R, P, P], whether prompt token i attends to prompt token j.
    prefix: bool [R, J * C, P], whether a completion token attends to a prompt
      token.
    lanes: bool [R, J, C, C], whether a completion token attends to another
      token of its lane.
  """

  prompts: jax.Array
  prefix: jax.Array
  lanes: jax.Array


@struct.dataclass
class PromptMask:
  """The attention mask of the last S tokens of prompts in P places.

  Attributes:
    seen: bool [B, S, P], whether query i may attend to place j.
    first: int32 [B], the place of the first token of each prompt.
  """

  seen: jax.Array
  first: jax.Array


@struct.dataclass
class ByLayer:
  """What differs between layers with a window and those without one."""

  windowed: Any
  full: Any


Mask = jax.Array | SharedPrefix | PromptMask | ByLayer


def by_layer(
  config: TransformerConfig, make: Callable[[int | None], Any]
) -> Any:
  """Calls `make` with the window of each kind of layer that a model has."""
  if config.global_every is None:
    return make(config.sliding_window)
  return ByLayer(make(config.sliding_window), make(None))


def of_layer(value: Any, is_global: jax.Array | bool | None) -> Any:
  """Returns the part of a `ByLayer` for one layer; other values as they are.

  `is_global` is that of the config, or a traced bool in a scan over layers.
  """
  if not isinstance(value, ByLayer):
    return value
  if is_global is None or isinstance(is_global, bool):
    return value.full if is_global else value.windowed
  return jax.tree.map(
    functools.partial(jnp.where, is_global), value.full, value.windowed
  )


def causal_mask(
  valid: jax.Array, sliding_window: int | None = None
) -> jax.Array:
  """Returns the causal mask [B, S, S] of padded sequences, from `valid` [B, S].

  A token attends to `sliding_window` tokens, including itself; None: no limit.
  """
  size = valid.shape[-1]
  causal = jnp.tril(jnp.ones((size, size), bool))
  if sliding_window is not None:
    causal &= ~jnp.tril(jnp.ones((size, size), bool), -sliding_window)
  return causal & valid[:, None, :]


def prompt_mask(
  valid: jax.Array, queries: int, sliding_window: int | None = None
) -> PromptMask:
  """The causal mask of the last tokens of padded prompts.

  Args:
    valid: bool [B, P], False on padding; completions may follow, padded on the
      right.
    queries: S, how many of the tokens attend.
  """
  seen = causal_mask(valid, sliding_window)
  before = jnp.cumsum(valid, axis=-1) == 0
  first = jnp.sum(before, axis=-1, dtype=jnp.int32)
  return PromptMask(seen[:, valid.shape[-1] - queries :], first)


def attend(
  queries: jax.Array, keys: jax.Array, values: jax.Array, mask: jax.Array
) -> jax.Array:
  """Computes grouped-query attention (arXiv 2305.13245).

  Args:
    queries: [B, S, K, U, H], already scaled.
    keys, values: [B, P, K, H].
    mask: bool [B, S, P], or [B, 1, P] if it is the same for all queries.
  """
  b, s, k, u, h = queries.shape
  # With B and K as leading axes, these are canonical matrix products. The
  # direct contraction took 2.4 times as long on CPU, forward and backward. B
  # and K stay separate axes because a mesh may split both. In the equations,
  # y is the axis of all queries of a key-value head, U * S.
  queries = jnp.transpose(queries, (0, 2, 3, 1, 4)).reshape(b, k, u * s, h)
  keys, values = jnp.swapaxes(keys, 1, 2), jnp.swapaxes(values, 1, 2)
  scores = jnp.einsum(
    'bkyh,bksh->bkys', queries, keys, preferred_element_type=jnp.float32
  ).reshape(b, k, u, s, -1)
  scores += jnp.where(mask, 0.0, _NEG_INF)[:, None, None]
  weights = jax.nn.softmax(scores, axis=-1).reshape(b, k, u * s, -1)
  attended = jnp.einsum('bkys,bksh->bkyh', weights.astype(values.dtype), values)
  return jnp.transpose(attended.reshape(b, k, u, s, h), (0, 3, 1, 2, 4))


def rounded(x: jax.Array) -> jax.Array:
  """Rounds to a number that bfloat16 has, and keeps the type."""
  return jax.lax.reduce_precision(x, exponent_bits=8, mantissa_bits=7)


def attend_flash(
  queries: jax.Array, keys: jax.Array, values: jax.Array, mask: jax.Array
) -> jax.Array:
  """Computes `attend` with cuDNN's flash attention (arXiv 2205.14135)."""
  b, s, k, u, h = queries.shape
  attended = jax.nn.dot_product_attention(
    queries.reshape(b, s, k * u, h),
    keys,
    values,
    mask=mask[:, None],
    scale=1.0,
    implementation='cudnn',
  )
  return attended.reshape(b, s, k, u, h)


def attend_shared(
  queries: jax.Array,
  keys: jax.Array,
  values: jax.Array,
  mask: SharedPrefix,
  attend_dense: Callable[..., jax.Array] = attend,
) -> jax.Array:
  """Computes attention over packed rows [R, S, K, U, H] that share prompts.

  `attend_dense` is a function such as `attend`, for the block of prompts.
  """
  prompt_size = mask.prompts.shape[-1]
  r, j, c = mask.lanes.shape[:3]
  k, u, h = queries.shape[2:]
  prompts = attend_dense(
    queries[:, :prompt_size],
    keys[:, :prompt_size],
    values[:, :prompt_size],
    mask.prompts,
  )
  # In the layout [R, K, J, U, C, H], the products with prompts and with lanes
  # are both canonical without a copy.
  lane_queries = queries[:, prompt_size:].reshape(r, j, c, k, u, h)
  lane_queries = lane_queries.transpose(0, 3, 1, 4, 2, 5)
  attended = _attend_lanes(lane_queries, keys, values, mask)
  lanes = jnp.transpose(attended, (0, 2, 4, 1, 3, 5)).astype(queries.dtype)
  return jnp.concatenate([prompts, lanes.reshape(r, -1, k, u, h)], axis=1)


def _attend_lanes(
  queries: jax.Array, keys: jax.Array, values: jax.Array, mask: SharedPrefix
) -> jax.Array:
  """Computes attention of completion tokens to prompts and to their lanes.

  The softmax of a completion token spans two products, over the prompts of its
  row and over its lane, so their weights share one maximum and one sum. Queries
  and result are [R, K, J, U, C, H].
  """
  prompt_size = mask.prompts.shape[-1]
  r, k, j, u, c, h = queries.shape

  def prompt_part(x):
    return jnp.swapaxes(x[:, :prompt_size], 1, 2)

  def lane_part(x):
    lanes = x[:, prompt_size:].reshape(r, j, c, k, h)
    return jnp.transpose(lanes, (0, 3, 1, 2, 4))

  def product(equation, x, y):
    return jnp.einsum(equation, x, y, preferred_element_type=jnp.float32)

  # In the equations, y is the axis of all queries that share keys: J * U * C
  # for the prompts of a row, U * C for a lane.
  def by_row(x):
    return x.reshape(r, k, j * u * c, -1)

  def by_lane(x):
    return x.reshape(r, k, j, u * c, -1)

  far = product('rkyh,rkph->rkyp', by_row(queries), prompt_part(keys))
  near = product('rkjyh,rkjch->rkjyc', by_lane(queries), lane_part(keys))
  bias = jnp.where(mask.prefix, 0.0, _NEG_INF).reshape(
    r, 1, j, 1, c, prompt_size
  )
  far = far.reshape(r, k, j, u, c, prompt_size) + bias
  bias = jnp.where(mask.lanes, 0.0, _NEG_INF)[:, None, :, None]
  near = near.reshape(r, k, j, u, c, c) + bias
  largest = jnp.maximum(jnp.max(far, axis=-1), jnp.max(near, axis=-1))
  largest = jax.lax.stop_gradient(largest)[..., None]
  far, near = jnp.exp(far - largest), jnp.exp(near - largest)
  total = jnp.sum(far, axis=-1) + jnp.sum(near, axis=-1)
  far, near = far.astype(values.dtype), near.astype(values.dtype)
  far = product('rkyp,rkph->rkyh', by_row(far), prompt_part(values))
  attended = far.reshape(queries.shape)
  near = product('rkjyc,rkjch->rkjyh', by_lane(near), lane_part(values))
  attended += near.reshape(queries.shape)
  return attended / total[..., None]


def _attend_native(
  queries: jax.Array,
  keys: jax.Array,
  values: jax.Array,
  mask: PromptMask,
  threads: int,
) -> jax.Array:
  """Computes `attend` with `cpp/attend.cc`, which has no gradient.

  Scores stay in the cache of a core, and those that no query sees are not
  computed: half of them in a causal model.
  """
  name, shape = 'attend_prompts', queries.shape
  masks = (mask.seen, mask.first)
  return native.call(name, shape, threads, queries, keys, values, *masks)


def attend_fn(
  config: TransformerConfig, threads: int = 0
) -> Callable[..., jax.Array]:
  """Returns the attention function of this platform for any `Mask`.

  cuDNN supports 16-bit types only. `threads` are those of a layer's
  `StoredKernel`, which has no gradient.
  """
  on_gpu = jax.default_backend() == 'gpu' and config.dtype != 'float32'
  dense = attend
  if config.attention == 'cudnn' or (config.attention == 'auto' and on_gpu):
    dense = attend_flash
  is_native = threads and native.fits(config.head_size, config.dtype)

  def attend_by_mask(queries, keys, values, mask):
    if isinstance(mask, SharedPrefix):
      return attend_shared(queries, keys, values, mask, dense)
    if isinstance(mask, PromptMask):
      if is_native:
        return _attend_native(queries, keys, values, mask, threads)
      mask = mask.seen
    return dense(queries, keys, values, mask)

  return attend_by_mask
