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
  could make NaN.

  Args:
    x: values, any shape.
    mask: booleans or weights of the shape of `x`; None keeps everything.
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

  Args:
    x: values, any shape.
    mask: booleans or weights of the shape of `x`; None counts everything.
    axis: axes to reduce; None reduces all.
    keepdims: whether to keep reduced axes with size one.
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
  """Returns the mean over valid elements, and 0 where there are none.

  Args:
    x: values, any shape.
    mask: booleans or weights of the shape of `x`; None counts everything.
    axis: axes to reduce; None reduces all.
    keepdims: whether to keep reduced axes with size one.
  """
  if mask is None:
    mask = jnp.ones(jnp.shape(x), bool)
  count = jnp.sum(mask, axis=axis, keepdims=keepdims)
  total = masked_sum(x, mask, axis, keepdims)
  return total / jnp.where(count > 0, count, 1)


def normalize(
  x: jax.Array,
  mask: jax.Array | None = None,
  *,
  axis: Axis = None,
  ddof: int = 0,
  epsilon: float = 1e-8,
) -> jax.Array:
  """Returns `(x - mean) / (std + epsilon)` over valid elements, 0 elsewhere.

  Call it once, before any loss, over the scope that `axis` names. A single
  valid element, or elements that are all equal, give exactly 0.

  Args:
    x: values, any shape.
    mask: booleans of the shape of `x`; None counts everything.
    axis: axes over which mean and deviation are computed; None takes all.
    ddof: 0 divides squares by n (population), 1 by n - 1 (sample).
    epsilon: added to the standard deviation.
  """
  x = jnp.asarray(x, jnp.result_type(x, jnp.float32))
  if mask is None:
    mask = jnp.ones(x.shape, bool)
  chex.assert_equal_shape([x, mask])
  valid = jnp.asarray(mask, bool)
  # Equal elements become exact zeros here. Their mean in float32 can differ
  # from them by a rounding error, which the division would raise to about 1.
  low = jnp.min(x, axis=axis, keepdims=True, where=valid, initial=jnp.inf)
  shifted = keep(x - low, valid)
  centered = shifted - masked_mean(shifted, valid, axis, keepdims=True)
  squares = masked_sum(jnp.square(centered), valid, axis, keepdims=True)
  count = jnp.sum(valid, axis=axis, keepdims=True)
  std = jnp.sqrt(squares / jnp.maximum(count - ddof, 1))
  return keep(centered / (std + epsilon), valid)
