"""Advantages within groups: numbers worked by hand, and identities."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from promptrl_jax.rl.groups import (
  SCALES,
  group_advantages,
  leave_one_out,
)

ONE_GROUP = jnp.zeros(4, jnp.int32)
ALL = [functools.partial(group_advantages, scale=scale) for scale in SCALES]
ALL.append(leave_one_out)


@pytest.mark.parametrize(
  ('scale', 'expected'),
  [
    ('std', [1.7320, -0.5774, -0.5774, -0.5774]),
    ('sample_std', [1.5, -0.5, -0.5, -0.5]),
    ('none', [0.75, -0.25, -0.25, -0.25]),
  ],
)
def test_one_success_in_four(scale, expected):
  rewards = jnp.array([1.0, 0.0, 0.0, 0.0])
  advantages = group_advantages(rewards, ONE_GROUP, 1, scale=scale)
  np.testing.assert_allclose(advantages, expected, atol=6e-5)


def test_leave_one_out_subtracts_the_mean_of_the_others():
  rewards = jnp.array([1.0, 0.0, 0.0, 2.0])
  advantages = leave_one_out(rewards, ONE_GROUP, 1)
  # 1 - (0 + 0 + 2) / 3, and so on
  expected = [1 / 3, -1.0, -1.0, 5 / 3]
  np.testing.assert_allclose(advantages, expected, rtol=1e-6)


@pytest.mark.parametrize('advantage_fn', ALL)
def test_groups_of_one_and_of_equal_rewards_give_exactly_zero(advantage_fn):
  # 0.1 three times has another mean in float32 than 0.1.
  rewards = jnp.array([0.1, 0.1, 0.1, 7.3])
  groups = jnp.array([0, 0, 0, 2])
  np.testing.assert_array_equal(advantage_fn(rewards, groups, 3), 0.0)


def random_groups(seed=0, size=40, num_groups=6):
  keys = jax.random.split(jax.random.key(seed), 3)
  rewards = jax.random.normal(keys[0], (size,)) * 3 + 5
  groups = jax.random.randint(keys[1], (size,), 0, num_groups)
  valid = jax.random.bernoulli(keys[2], 0.7, (size,))
  return rewards, groups, num_groups, valid


@pytest.mark.parametrize('scale', SCALES)
def test_unequal_groups_with_invalid_members_equal_numpy(scale):
  rewards, groups, num_groups, valid = random_groups()
  expected = np.zeros(len(rewards))
  for group in range(num_groups):
    rows = np.asarray(valid & (groups == group))
    own = np.asarray(rewards, np.float64)[rows]
    assert len(own) > 1
    std = {'std': own.std(), 'sample_std': own.std(ddof=1), 'none': 1.0}[scale]
    expected[rows] = (own - own.mean()) / std
  jitted = jax.jit(group_advantages, static_argnums=2, static_argnames='scale')
  advantages = jitted(rewards, groups, num_groups, valid, scale=scale)
  np.testing.assert_allclose(advantages, expected, atol=1e-5)


def test_leave_one_out_equals_its_definition():
  rewards, groups, num_groups, valid = random_groups(1)
  advantages = leave_one_out(rewards, groups, num_groups, valid)
  for i in range(len(rewards)):
    others = (groups == groups[i]) & valid & (jnp.arange(len(rewards)) != i)
    expected = rewards[i] - rewards[others].mean() if valid[i] else 0.0
    np.testing.assert_allclose(advantages[i], expected, atol=1e-5)


@pytest.mark.parametrize('advantage_fn', ALL)
def test_invalid_rows_have_no_influence(advantage_fn):
  rewards, groups, num_groups, valid = random_groups(2)
  expected = advantage_fn(rewards, groups, num_groups, valid)
  np.testing.assert_array_equal(expected[~valid], 0.0)
  rewards = jnp.where(valid, rewards, jnp.nan)
  groups = jnp.where(valid, groups, -1)
  result = advantage_fn(rewards, groups, num_groups, valid)
  np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize('advantage_fn', ALL)
def test_advantages_of_a_group_sum_to_zero_whatever_is_added(advantage_fn):
  rewards, groups, num_groups, valid = random_groups(3)
  advantages = advantage_fn(rewards, groups, num_groups, valid)
  sums = jax.ops.segment_sum(advantages, groups, num_groups)
  np.testing.assert_allclose(sums, 0.0, atol=1e-4)
  shifted = rewards + 10.0 * groups
  result = advantage_fn(shifted, groups, num_groups, valid)
  np.testing.assert_allclose(result, advantages, atol=1e-4)


@pytest.mark.parametrize('advantage_fn', ALL)
def test_the_order_of_rows_and_vmap_change_nothing(advantage_fn):
  rewards, groups, num_groups, valid = random_groups(4)
  expected = advantage_fn(rewards, groups, num_groups, valid)
  order = jax.random.permutation(jax.random.key(0), len(rewards))
  result = advantage_fn(rewards[order], groups[order], num_groups, valid[order])
  np.testing.assert_allclose(result, expected[order], atol=1e-5)
  batched = jax.vmap(lambda r, g, v: advantage_fn(r, g, num_groups, v))(
    rewards[None], groups[None], valid[None]
  )
  np.testing.assert_allclose(batched[0], expected, atol=1e-6)


@pytest.mark.parametrize('advantage_fn', ALL)
def test_a_nan_reward_spoils_its_own_group_alone(advantage_fn):
  rewards, groups = jnp.array([jnp.nan, 1, 0, 1]), jnp.array([0, 0, 1, 1])
  advantages = advantage_fn(rewards, groups, 2)
  assert jnp.isnan(advantages[:2]).all()
  assert jnp.isfinite(advantages[2:]).all()


def test_a_group_out_of_range_cannot_be_overlooked():
  for bad in (-1, 2):
    advantages = group_advantages(jnp.arange(3.0), jnp.array([0, 1, bad]), 2)
    assert jnp.isnan(advantages).any()


def test_bad_input_is_refused():
  rewards = jnp.arange(4.0)
  with pytest.raises(ValueError, match="'max'.*std, sample_std, none"):
    group_advantages(rewards, ONE_GROUP, 1, scale='max')
  with pytest.raises(ValueError, match='float32.*integers'):
    group_advantages(rewards, jnp.zeros(4), 1)
  with pytest.raises(AssertionError):
    group_advantages(rewards[:, None], ONE_GROUP[:, None], 1)
  with pytest.raises(AssertionError):
    leave_one_out(rewards, ONE_GROUP[:3], 1)
