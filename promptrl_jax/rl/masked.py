"""Reductions over valid elements: the one place that excludes padding.

Every loss and return of the project reduces through these functions. A mask is
boolean, or a float array of non-negative weights; an element whose mask is
zero has no influence, whatever its value, NaN included.
"""

from __future__ import annotations

import chex
import jax
import jax.numpy as jnp

Axis = int | tuple[int, ...] | None


def keep(x: jax.Array, mask: jax.Array | None = None) -> jax.Array:
  """Returns `x` with invalid elements replaced by 0.

  Elements are selected, not multiplied: 0 * NaN is NaN. The same holds for the
  gradient, so padding must be set to 0 *before* a function whose derivative it
  could make NaN. A mask of None keeps everything, here and below.
  """
  x = jnp.asarray(x)
  if mask is None:
    return x
  chex.assert_equal_shape([x, mask])
  return jnp.where(jnp.asarray(mask) != 0, x, jnp.zeros_like(x))


def masked_sum(
  x: jax.Array,
  mask: jax.Array | None = None,
  axis: Axis = None,
  keepdims: bool = False,
) -> jax.Array:
  """Returns `sum_i mask_i * x_i`.

  A mean is this sum over the sum of the mask. Keep the two apart until all
  micro-batches have been added: a mean of means is wrong for ragged masks.
  """
  x = keep(x, mask)
  weighted = x if mask is None else x * mask
  return jnp.sum(weighted, axis=axis, keepdims=keepdims)


def masked_mean(
  x: jax.Array,
  mask: jax.Array | None = None,
  axis: Axis = None,
  keepdims: bool = False,
) -> jax.Array:
  """Returns the mean over valid elements, and 0 where there are none."""
  if mask is None:
    mask = jnp.ones(jnp.shape(x), bool)
  count = jnp.sum(mask, axis=axis, keepdims=keepdims)
  total = masked_sum(x, mask, axis, keepdims)
  return total / jnp.where(count > 0, count, 1)


def normalize(
  x: jax.Array,
  mask: jax.Array | None = None,
  *,
  ddof: int = 0,
) -> jax.Array:
  """Returns `(x - mean) / (std + 1e-8)` over valid elements, 0 elsewhere.

  Call it once, before any loss. A single valid element, or elements that are
  all equal, give exactly 0. A `ddof` of 0 divides squares by n (population), 1
  by n - 1 (sample).
  """
  x = jnp.asarray(x, jnp.result_type(x, jnp.float32))
  if mask is None:
    mask = jnp.ones(x.shape, bool)
  chex.assert_equal_shape([x, mask])
  valid = jnp.asarray(mask, bool)
  # Equal elements become exact zeros here. Their mean in float32 can differ
  # from them by a rounding error, which the division would raise to about 1.
  shifted = keep(x - jnp.min(x, where=valid, initial=jnp.inf), valid)
  centered = shifted - masked_mean(shifted, valid)
  squares = masked_sum(jnp.square(centered), valid)
  std = jnp.sqrt(squares / jnp.maximum(jnp.sum(valid) - ddof, 1))
  return keep(centered / (std + 1e-8), valid)
