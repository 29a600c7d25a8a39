"""Which sequences are worth an update: masks, never changed advantages."""

from __future__ import annotations

import chex
import jax
import jax.numpy as jnp


def informative_groups(
  rewards: jax.Array,
  groups: jax.Array,
  num_groups: int,
  valid: jax.Array | None = None,
) -> jax.Array:
  """Returns which groups have rewards that differ.

    keep group g  iff  max_g r > min_g r

  The others have advantages of zero and are to be sampled anew: the dynamic
  sampling of "DAPO" (Yu et al., 2025, https://arxiv.org/abs/2503.14476, eq.
  11).
  A group with a NaN among its valid rewards is not informative.

  Args:
    rewards: `[N]`.
    groups: `[N]` int in [0, num_groups).
    num_groups: how many groups there are; static.
    valid: `[N]` bool, rows that count; None counts all.

  Returns:
    `[num_groups]` bool; index it by `groups` for the rows.
  """
  rewards = jnp.asarray(rewards, jnp.result_type(rewards, jnp.float32))
  groups = jnp.asarray(groups)
  if valid is None:
    valid = jnp.ones(rewards.shape, bool)
  chex.assert_rank(rewards, 1)
  chex.assert_equal_shape([rewards, groups, valid])
  valid = jnp.asarray(valid, bool)
  index = jnp.where(valid, groups, 0)
  high = jax.ops.segment_max(
    jnp.where(valid, rewards, -jnp.inf), index, num_groups
  )
  low = jax.ops.segment_min(
    jnp.where(valid, rewards, jnp.inf), index, num_groups
  )
  return high > low


def percentile_filter(
  rewards: jax.Array, percentile: float, valid: jax.Array | None = None
) -> jax.Array:
  """Returns which sequences have a reward of at least a percentile.

    keep i  iff  r_i >= r_(k),  k = floor(percentile / 100 * (n - 1))

  with r_(0) <= ... <= r_(n-1) the valid rewards in order. Compute advantages
  first, over all sequences, and multiply their mask by this one: standardising
  what was kept a second time would turn good sequences into bad examples. Ties
  at the threshold are kept, so at least one sequence always is. Learning from
  the best alone is RAFT (https://arxiv.org/abs/2304.06767).

  Args:
    rewards: `[N]`.
    percentile: 0 keeps all, 100 the best; static.
    valid: `[N]` bool, rows that count; None counts all.

  Returns:
    `[N]` bool, False where invalid or NaN.
  """
  if not 0 <= percentile <= 100:
    raise ValueError(f'percentile={percentile}: expected 0 to 100')
  rewards = jnp.asarray(rewards, jnp.result_type(rewards, jnp.float32))
  if valid is None:
    valid = jnp.ones(rewards.shape, bool)
  chex.assert_rank(rewards, 1)
  chex.assert_equal_shape([rewards, valid])
  valid = jnp.asarray(valid, bool)
  # 'lower' takes a reward that occurs. One between two equal rewards could be
  # rounded above both and keep nothing.
  threshold = jnp.nanpercentile(
    jnp.where(valid, rewards, jnp.nan), percentile, method='lower'
  )
  return valid & (rewards >= threshold)
