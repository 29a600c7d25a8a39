"""Attention over whole sequences, and who may attend to whom."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

_NEG_INF = -1e30


@struct.dataclass
class SharedPrefix:
  """The mask of rows in which completions share the prompts of their row.

  A row of T = P + S * C tokens is a block of P prompt tokens, in which several
  prompts may lie, and S lanes of C completion tokens, each lane with
  completions one after another. A prompt that has many completions is read
  once, and no completion attends to those of another lane, so that nothing is
  computed for most of the T x T pairs.

  Attributes:
    prompts: bool [R, P, P], who among the prompt tokens sees whom.
    prefix: bool [R, S * C, P], the prompt tokens that a completion token sees.
    lanes: bool [R, S, C, C], the tokens of its lane that it sees.
  """

  prompts: jax.Array
  prefix: jax.Array
  lanes: jax.Array


Mask = jax.Array | SharedPrefix


def causal_mask(
  valid: jax.Array, sliding_window: int | None = None
) -> jax.Array:
  """Whether query t may attend to key s: bool [B, T, T].

  Args:
    valid: bool [B, T], False on padding.
    sliding_window: how many tokens back a token sees, itself included.
  """
  size = valid.shape[-1]
  causal = jnp.tril(jnp.ones((size, size), bool))
  if sliding_window is not None:
    causal &= ~jnp.tril(jnp.ones((size, size), bool), -sliding_window)
  return causal & valid[:, None, :]


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
  # Canonical matrix products with B and K in front: the contraction written
  # directly took 2.4 times as long on CPU, forward and backward. B and K stay
  # apart, because a mesh may split both.
  queries = jnp.transpose(queries, (0, 2, 3, 1, 4)).reshape(b, k, g * t, h)
  keys, values = jnp.swapaxes(keys, 1, 2), jnp.swapaxes(values, 1, 2)
  scores = jnp.einsum(
    'bkqh,bksh->bkqs', queries, keys, preferred_element_type=jnp.float32
  ).reshape(b, k, g, t, -1)
  scores += jnp.where(mask, 0.0, _NEG_INF)[:, None, None]
  weights = jax.nn.softmax(scores, axis=-1).reshape(b, k, g * t, -1)
  attended = jnp.einsum('bkqs,bksh->bkqh', weights.astype(values.dtype), values)
  return jnp.transpose(attended.reshape(b, k, g, t, h), (0, 3, 1, 2, 4))


def attend_flash(
  queries: jax.Array, keys: jax.Array, values: jax.Array, mask: jax.Array
) -> jax.Array:
  """`attend` by cuDNN's fused kernel (arXiv 2205.14135)."""
  b, t, k, g, h = queries.shape
  attended = jax.nn.dot_product_attention(
    queries.reshape(b, t, k * g, h),
    keys,
    values,
    mask=mask[:, None],
    scale=1.0,
    implementation='cudnn',
  )
  return attended.reshape(b, t, k, g, h)


def attend_shared(
  queries: jax.Array,
  keys: jax.Array,
  values: jax.Array,
  mask: SharedPrefix,
  attend_dense: Callable[..., jax.Array] = attend,
) -> jax.Array:
  """`attend` for rows that share prompts; arguments [R, T, ...].

  The softmax of a completion token spans two products, over the prompts of its
  row and over its lane: their weights share one maximum and one sum.

  Args:
    queries, keys, values: as for `attend`.
    mask: who sees whom.
    attend_dense: what the block of prompts is given to.
  """
  size = mask.prompts.shape[-1]
  r, s, c = mask.lanes.shape[:3]
  k, g, h = queries.shape[2:]
  prompts = attend_dense(
    queries[:, :size], keys[:, :size], values[:, :size], mask.prompts
  )
  # [R, K, S, G, C, H] lies so that both products are canonical without a copy.
  own = queries[:, size:].reshape(r, s, c, k, g, h).transpose(0, 3, 1, 4, 2, 5)

  def of_prompts(x):
    return jnp.swapaxes(x[:, :size], 1, 2)

  def of_lanes(x):
    lanes = x[:, size:].reshape(r, s, c, k, h)
    return jnp.transpose(lanes, (0, 3, 1, 2, 4))

  def product(equation, x, y):
    return jnp.einsum(equation, x, y, preferred_element_type=jnp.float32)

  def of_row(x):
    return x.reshape(r, k, s * g * c, -1)

  def of_lane(x):
    return x.reshape(r, k, s, g * c, -1)

  far = product('rkqh,rkph->rkqp', of_row(own), of_prompts(keys))
  near = product('rksqh,rksch->rksqc', of_lane(own), of_lanes(keys))
  seen = jnp.where(mask.prefix, 0.0, _NEG_INF).reshape(r, 1, s, 1, c, size)
  far = far.reshape(r, k, s, g, c, size) + seen
  seen = jnp.where(mask.lanes, 0.0, _NEG_INF)[:, None, :, None]
  near = near.reshape(r, k, s, g, c, c) + seen
  largest = jnp.maximum(jnp.max(far, axis=-1), jnp.max(near, axis=-1))
  largest = jax.lax.stop_gradient(largest)[..., None]
  far, near = jnp.exp(far - largest), jnp.exp(near - largest)
  total = jnp.sum(far, axis=-1) + jnp.sum(near, axis=-1)
  far, near = far.astype(values.dtype), near.astype(values.dtype)
  attended = (
    product('rkqp,rkph->rkqh', of_row(far), of_prompts(values)).reshape(
      own.shape
    )
    + product('rksqc,rksch->rksqh', of_lane(near), of_lanes(values)).reshape(
      own.shape
    )
  ) / total[..., None]
  lanes = jnp.transpose(attended, (0, 2, 4, 1, 3, 5)).astype(queries.dtype)
  return jnp.concatenate([prompts, lanes.reshape(r, -1, k, g, h)], axis=1)


def attend_fn(kind: str, dtype: Any) -> Callable[..., jax.Array]:
  """What attends on this platform, by the kind of its mask.

  Args:
    kind: of `TransformerConfig.attention`.
    dtype: of the activations; cuDNN takes 16 bits alone.
  """
  on_gpu = jax.default_backend() == 'gpu' and dtype != 'float32'
  flash = kind == 'cudnn' or (kind == 'auto' and on_gpu)
  dense = attend_flash if flash else attend

  def attend_by_mask(queries, keys, values, mask):
    if isinstance(mask, SharedPrefix):
      return attend_shared(queries, keys, values, mask, dense)
    return dense(queries, keys, values, mask)

  return attend_by_mask
