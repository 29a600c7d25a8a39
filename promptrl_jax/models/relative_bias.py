"""The position bias of T5 (arXiv 1910.10683, section 2.1) in buckets.

Half of the buckets hold one distance each, and the size of the others grows
logarithmically with the distance.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

_NEG_INF = -1e30


def buckets(
  offsets: np.ndarray, is_bidirectional: bool, count: int, max_distance: int
) -> np.ndarray:
  """Returns the bucket of each offset.

  The function computes on the host in float64. Distances such as 2 * 8 lie
  exactly on the border of two buckets, where float32 logarithms differ between
  machines.

  Args:
    offsets: int [...], position of the key minus position of the query.
    is_bidirectional: whether half of the buckets are for keys after the query.
      Otherwise such keys share bucket 0 and the caller masks them.
  """
  if is_bidirectional:
    count //= 2
    first = np.where(offsets > 0, count, 0)
    distances = np.abs(offsets)
  else:
    first = np.zeros_like(offsets)
    distances = np.maximum(-offsets, 0)
  exact = count // 2
  growth = np.log(np.maximum(distances, 1) / exact) / np.log(
    max_distance / exact
  )
  # The small constant keeps borders exact despite rounding errors.
  far = exact + np.floor(growth * (count - exact) + 1e-9).astype(np.int64)
  return first + np.where(
    distances < exact, distances, np.minimum(far, count - 1)
  )


def square(
  table: jax.Array, size: int, is_bidirectional: bool, max_distance: int
) -> jax.Array:
  """Returns the bias [Q, S, S] of all queries and keys; table [buckets, Q]."""
  offsets = np.arange(1 - size, size)
  by_offset = table[
    buckets(offsets, is_bidirectional, table.shape[0], max_distance)
  ]
  positions = jnp.arange(size)
  bias = by_offset[positions[None, :] - positions[:, None] + size - 1]
  return jnp.moveaxis(bias, -1, 0)


def causal(table: jax.Array, size: int, max_distance: int) -> jax.Array:
  """Returns the bias of `square`, very negative for keys after the query."""
  bias = square(table, size, False, max_distance)
  return jnp.where(jnp.tril(jnp.ones((size, size), bool)), bias, _NEG_INF)


def row(
  table: jax.Array, slots: int, position: jax.Array, max_distance: int
) -> jax.Array:
  """Returns the bias [..., Q, M] of a query for all keys of a cache.

  `position` is int [...], at most M - 1; the caller masks what follows it. The
  key in cache slot m has position m.
  """
  by_distance = table[
    buckets(-np.arange(slots), False, table.shape[0], max_distance)
  ]
  distance = jnp.maximum(position[..., None] - jnp.arange(slots), 0)
  return jnp.swapaxes(by_distance[distance], -1, -2)
