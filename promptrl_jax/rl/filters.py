"""Masks that select groups for an update; advantages are never changed."""

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
  """Returns a mask of the groups whose rewards differ.

    keep group g  iff  max_g r > min_g r

  All advantages of the other groups are zero, so they are to be sampled again:
  the dynamic sampling of "DAPO" (Yu et al., 2025,
  https://arxiv.org/abs/2503.14476, eq. 11).

  A group with a NaN among its valid rewards is not informative. Arguments are
  those of `groups.group_advantages`.

  Returns:
    `[B]` bool; index it by `groups` for a mask of rows.
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
