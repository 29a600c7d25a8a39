"""The position bias of T5: one learned number per head and bucket of distances.

Source: arXiv 1910.10683, section 2.1; the buckets are those of its reference
implementation: half of them hold one distance each, the other half grow with
the logarithm of the distance.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

_NEG_INF = -1e30


def buckets(
  offsets: np.ndarray, is_bidirectional: bool, count: int, max_distance: int
) -> np.ndarray:
  """The bucket of each offset.

  On the host and in float64: distances such as 2 * 8 lie exactly on the border
  of two buckets, where float32 logarithms of different machines disagree.

  Args:
    offsets: int [...], position of the key minus that of the query.
    is_bidirectional: half of the buckets are for keys behind the query; if not,
      such keys share bucket 0, and the caller masks them.
    count: number of buckets.
    max_distance: from here on all distances share the last bucket.

  Returns:
    int [...], in [0, count).
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
  # A border must not be missed by a rounding error.
  far = exact + np.floor(growth * (count - exact) + 1e-9).astype(np.int64)
  return first + np.where(
    distances < exact, distances, np.minimum(far, count - 1)
  )


def square(
  table: jax.Array, size: int, is_bidirectional: bool, max_distance: int
) -> jax.Array:
  """Bias of every query for every key of one sequence.

  Args:
    table: [buckets, Q].
    size: T, length of the sequence.
    is_bidirectional: as in `buckets`.
    max_distance: as in `buckets`.

  Returns:
    [Q, T, T].
  """
  offsets = np.arange(1 - size, size)
  by_offset = table[
    buckets(offsets, is_bidirectional, table.shape[0], max_distance)
  ]
  places = jnp.arange(size)
  chosen = by_offset[places[None, :] - places[:, None] + size - 1]
  return jnp.moveaxis(chosen, -1, 0)


def causal(table: jax.Array, size: int, max_distance: int) -> jax.Array:
  """`square` with very negative numbers for keys that lie ahead."""
  bias = square(table, size, False, max_distance)
  return jnp.where(jnp.tril(jnp.ones((size, size), bool)), bias, _NEG_INF)


def row(
  table: jax.Array, slots: int, position: jax.Array, max_distance: int
) -> jax.Array:
  """Bias of the causal query at each position for the keys in S slots.

  Args:
    table: [buckets, Q].
    slots: S; slot s holds the key of position s.
    position: int [...], at most S - 1.
    max_distance: as in `buckets`.

  Returns:
    [..., Q, S]; slots after it get some value, and the caller masks them.
  """
  by_distance = table[
    buckets(-np.arange(slots), False, table.shape[0], max_distance)
  ]
  distance = jnp.maximum(position[..., None] - jnp.arange(slots), 0)
  return jnp.swapaxes(by_distance[distance], -1, -2)
