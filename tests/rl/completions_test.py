"""Rewards and advantages of tokens: by hand, and against `gae`."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from promptrl_jax.rl import kl
from promptrl_jax.rl.advantages import gae
from promptrl_jax.rl.completions import (
  completion_gae,
  completion_returns,
  reinforce_pp_advantages,
  to_tokens,
  token_rewards,
)
from promptrl_jax.rl.groups import group_advantages

F, T = False, True
MASK = jnp.array([[T, T, T, F], [T, F, T, F], [F, F, F, F]])


def test_values_of_sequences_at_their_tokens():
  tokens = to_tokens(jnp.array([1.0, -2.0, jnp.nan]), MASK)
  np.testing.assert_array_equal(
    tokens, [[1, 1, 1, 0], [-2, 0, -2, 0], [0, 0, 0, 0]]
  )


def test_the_reward_is_paid_at_the_last_token_and_divergence_everywhere():
  token_kl = jnp.array([[1.0, 2, 3, jnp.nan], [4, jnp.nan, 5, 6], [1, 1, 1, 1]])
  paid = jax.jit(token_rewards)(
    jnp.array([10.0, 20.0, jnp.nan]), MASK, token_kl, 0.1
  )
  expected = [[-0.1, -0.2, 9.7, 0], [-0.4, 0, 19.5, 0], [0, 0, 0, 0]]
  np.testing.assert_allclose(paid, expected, rtol=1e-6)
  np.testing.assert_allclose(paid.sum(1), [10 - 0.6, 20 - 0.9, 0.0], rtol=1e-6)


def test_no_gradient_flows_through_rewards():
  logps, ref_logps = jax.random.normal(jax.random.key(0), (2, 3, 4))

  def total(logps):
    token_kl = kl.token_kl(logps, ref_logps, MASK, kind='k1')
    return token_rewards(jnp.ones(3), MASK, token_kl, 0.1).sum()

  np.testing.assert_array_equal(jax.grad(total)(logps), 0.0)


def test_gae_golden_values_over_tokens():
  mask = jnp.array([[T, T, T, F]])
  rewards = token_rewards(jnp.ones(1), mask)
  values = jnp.array([[0.5, 0.4, 0.3, jnp.nan]])
  advantages = completion_gae(rewards, values, mask, gamma=0.99, lam=0.95)
  np.testing.assert_allclose(
    advantages, [[0.418307, 0.555350, 0.7, 0.0]], atol=1e-6
  )


def test_masked_tokens_in_between_are_skipped():
  rewards, values = jax.random.normal(jax.random.key(1), (2, 5, 9))
  mask = jax.random.bernoulli(jax.random.key(2), 0.6, (5, 9))
  dirty = [jnp.where(mask, x, jnp.nan) for x in (rewards, values)]
  result = jax.jit(completion_gae, static_argnames=('gamma', 'lam'))(
    *dirty, mask, gamma=0.9, lam=0.8
  )
  for i in range(5):
    own = np.asarray(mask[i])
    next_values = jnp.append(values[i][own], 0.0)[1:]
    never = jnp.zeros(own.sum(), bool)
    expected = gae(
      rewards[i][own],
      values[i][own],
      next_values,
      never,
      never,
      gamma=0.9,
      lam=0.8,
    )
    np.testing.assert_allclose(result[i][own], expected, atol=1e-5)
    np.testing.assert_array_equal(result[i][~own], 0.0)


def test_returns_by_hand():
  rewards = jnp.array([[1.0, 2, 4, jnp.nan], [1, jnp.nan, 3, 5], [1, 1, 1, 1]])
  np.testing.assert_allclose(
    completion_returns(rewards, MASK, gamma=0.5),
    [[3.0, 4, 4, 0], [2.5, 0, 3, 0], [0, 0, 0, 0]],
  )


def test_gae_with_lambda_one_is_return_minus_value():
  rewards, values = jax.random.normal(jax.random.key(3), (2, 3, 4))
  advantages = completion_gae(rewards, values, MASK, gamma=0.9, lam=1.0)
  returns = completion_returns(rewards, MASK, gamma=0.9)
  expected = jnp.where(MASK, returns - values, 0)
  np.testing.assert_allclose(advantages, expected, atol=1e-6)


def test_reinforce_pp_standardises_over_the_tokens_of_the_batch():
  mask = jnp.array([[T, T], [T, F]])
  advantages = reinforce_pp_advantages(
    jnp.array([1.0, 4.0]), mask, jnp.array([[1.0, 2.0], [3.0, jnp.nan]]), 0.5
  )
  # Returns 1 - 1.5, 1 - 1, 4 - 1.5: mean 2/3, population variance 31/18.
  raw = np.array([[-0.5, 0.0], [2.5, 0.0]]) - 2 / 3
  expected = raw / np.sqrt(31 / 18) * mask
  np.testing.assert_allclose(advantages, expected, rtol=1e-5)


def test_reinforce_pp_on_centered_rewards_is_its_group_baseline():
  rewards = jnp.array([1.0, 0.0, 5.0, 4.0])
  groups = jnp.array([0, 0, 1, 1])
  centered = group_advantages(rewards, groups, 2, scale='none')
  advantages = reinforce_pp_advantages(centered, jnp.ones((4, 3), bool))
  expected = np.repeat([[1.0], [-1.0], [1.0], [-1.0]], 3, axis=1)
  np.testing.assert_allclose(advantages, expected, rtol=1e-5)


def test_vmap_over_sequences_changes_nothing():
  rewards, values = jax.random.normal(jax.random.key(4), (2, 3, 4))
  expected = completion_gae(rewards, values, MASK, lam=0.7)
  rows = jax.vmap(lambda *x: completion_gae(*x, lam=0.7))(
    rewards[:, None], values[:, None], MASK[:, None]
  )
  np.testing.assert_allclose(rows[:, 0], expected, atol=1e-6)


def test_shapes_that_differ_are_refused():
  with pytest.raises(AssertionError):
    token_rewards(jnp.ones(2), MASK)
  with pytest.raises(AssertionError):
    token_rewards(jnp.ones(3), MASK, jnp.ones(3), 0.1)
  with pytest.raises(AssertionError):
    completion_gae(jnp.ones((3, 4)), jnp.ones((3, 5)), MASK)
