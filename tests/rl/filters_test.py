"""Filters: what they keep, and that keeping changes no sign."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from promptrl_jax.rl.filters import informative_groups, percentile_filter
from promptrl_jax.rl.group_advantages import group_advantages

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


@pytest.mark.parametrize(
  ('percentile', 'kept'),
  [(0, [T, T, T, T, F]), (50, [F, T, T, T, F]), (100, [F, F, F, T, F])],
)
def test_percentiles_of_valid_rewards(percentile, kept):
  rewards = jnp.array([1.0, 2.0, 3.0, 4.0, 9.0])
  valid = jnp.array([T, T, T, T, F])
  result = percentile_filter(rewards, percentile, valid)
  np.testing.assert_array_equal(result, kept)


def test_ties_are_kept_and_nan_is_not():
  keep = percentile_filter(jnp.array([0.1, 0.1, 0.1]), 70)
  np.testing.assert_array_equal(keep, [T, T, T])
  keep = percentile_filter(jnp.array([jnp.nan, 1.0, 2.0]), 0)
  np.testing.assert_array_equal(keep, [F, T, T])
  assert not percentile_filter(jnp.ones(3), 50, jnp.zeros(3, bool)).any()


def test_kept_sequences_above_the_mean_keep_positive_advantages():
  rewards = jnp.array([0.0, 0.2, 0.8, 0.9, 1.0])
  groups = jnp.zeros(5, jnp.int32)
  advantages = group_advantages(rewards, groups, 1)
  keep = jax.jit(percentile_filter, static_argnums=1)(rewards, 50)
  np.testing.assert_array_equal(keep, [F, F, T, T, T])
  assert (advantages[keep] > 0).all()
  # Standardising what was kept would have called the first of them bad.
  again = group_advantages(rewards, groups, 1, keep)
  assert again[2] < 0


@pytest.mark.parametrize('percentile', [-1, 101, float('nan')])
def test_a_percentile_out_of_range_is_refused(percentile):
  with pytest.raises(ValueError, match='percentile=.*expected 0 to 100'):
    percentile_filter(jnp.ones(3), percentile)
