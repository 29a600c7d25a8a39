"""Dynamic sampling: which groups of rewards are informative."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from promptrl_jax.rl.filters import informative_groups
from promptrl_jax.rl.groups import group_advantages

F, T = False, True


def test_groups_are_informative_where_rewards_differ():
  rewards = jnp.array([0.1, 0.1, 0.1, 1.0, 0.0, 5.0, 2.0, 3.0])
  groups = jnp.array([0, 0, 0, 1, 1, 2, 4, 4])
  keep = jax.jit(informative_groups, static_argnums=2)(rewards, groups, 5)
  np.testing.assert_array_equal(keep, [F, T, F, F, T])


def test_only_valid_rewards_inform():
  rewards = jnp.array([1.0, jnp.nan, 1.0, 0.0, jnp.nan, 2.0])
  groups = jnp.array([0, 0, 1, 1, 2, 2])
  valid = jnp.array([T, F, T, T, T, T])
  keep = informative_groups(rewards, groups, 3, valid)
  np.testing.assert_array_equal(keep, [F, T, F])
  np.testing.assert_array_equal(
    informative_groups(rewards, groups, 3, jnp.zeros(6, bool)), [F, F, F]
  )


def test_informative_groups_are_those_with_an_advantage():
  key = jax.random.key(0)
  rewards = jax.random.bernoulli(key, 0.5, (60,)).astype(jnp.float32)
  groups = jnp.arange(60) // 3
  advantages = group_advantages(rewards, groups, 20)
  keep = informative_groups(rewards, groups, 20)
  assert keep.any() and not keep.all()
  np.testing.assert_array_equal(keep[groups], advantages != 0)
