"""Advantages: numbers worked by hand, and identities."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from promptrl_jax.rl.advantages import gae, sibling_advantages

F, T = False, True


def test_gae_of_a_terminated_episode():
  advantages = gae(
    jnp.array([0.0, 0.0, 1.0]),
    jnp.array([0.5, 0.4, 0.3]),
    jnp.array([0.4, 0.3, jnp.nan]),
    jnp.array([F, F, T]),
    jnp.array([F, F, F]),
    gamma=0.99,
    lam=0.95,
  )
  np.testing.assert_allclose(advantages, [0.418307, 0.555350, 0.7], atol=1e-6)


@pytest.mark.parametrize('cut', [F, T])
def test_gae_bootstraps_at_the_end_of_a_rollout_and_at_a_cut(cut):
  advantages = gae(
    jnp.zeros(3),
    jnp.array([0.5, 0.4, 0.3]),
    jnp.array([0.4, 0.3, 0.2]),
    jnp.zeros(3, bool),
    jnp.array([F, F, cut]),
    gamma=0.99,
    lam=0.95,
  )
  expected = [-0.291095, -0.198931, -0.102]
  np.testing.assert_allclose(advantages, expected, atol=1e-6)


def random_rollout(seed, shape=(9, 4)):
  keys = jax.random.split(jax.random.key(seed), 5)
  rewards, values, next_values = (
    jax.random.normal(key, shape) for key in keys[:3]
  )
  terminated = jax.random.bernoulli(keys[3], 0.2, shape)
  truncated = jax.random.bernoulli(keys[4], 0.2, shape)
  return rewards, values, next_values, terminated, truncated


def test_gae_equals_its_definition_summed_in_numpy():
  gamma, lam = 0.9, 0.7
  arrays = random_rollout(0)
  rewards, values, next_values, terminated, truncated = map(np.asarray, arrays)
  deltas = rewards + gamma * (1 - terminated) * next_values - values
  expected = np.zeros_like(deltas)
  for t in range(len(deltas)):
    weight = np.ones(deltas.shape[1])
    for k in range(t, len(deltas)):
      expected[t] += weight * deltas[k]
      weight *= gamma * lam * ~(terminated[k] | truncated[k])
  result = jax.jit(lambda *x: gae(*x, gamma=gamma, lam=lam))(*arrays)
  np.testing.assert_allclose(result, expected, atol=1e-5)


def test_gae_with_lambda_one_is_return_minus_value():
  rewards, values, next_values, terminated, _ = random_rollout(1)
  terminated = terminated.at[-1].set(True)
  never = jnp.zeros_like(terminated)
  # On one trajectory the next value is the value of the next state.
  next_values = jnp.concatenate([values[1:], next_values[-1:]])
  advantages = gae(
    rewards, values, next_values, terminated, never, gamma=0.9, lam=1.0
  )
  returns = np.zeros_like(rewards)
  following = np.zeros(rewards.shape[1])
  for t in reversed(range(len(rewards))):
    following = rewards[t] + 0.9 * ~terminated[t] * following
    returns[t] = following
  np.testing.assert_allclose(advantages + values, returns, atol=1e-5)


def test_no_reward_flows_back_over_a_cut():
  rewards, values, next_values, terminated, truncated = random_rollout(2)
  truncated = truncated.at[4].set(True)

  def before_cut(rewards):
    advantages = gae(
      rewards, values, next_values, terminated, truncated, gamma=0.9, lam=0.7
    )
    return advantages[:5].sum()

  np.testing.assert_array_equal(jax.grad(before_cut)(rewards)[5:], 0.0)


@pytest.mark.parametrize('at', [0, 3, 9])
def test_invalid_steps_have_no_influence_wherever_they_are(at):
  arrays = random_rollout(3)
  mask = jnp.ones(arrays[0].shape, bool)
  garbage = [jnp.nan, jnp.nan, jnp.nan, True, True]

  def insert(x, value):
    return np.insert(np.asarray(x), at, value, axis=0)

  padded = [insert(x, value) for x, value in zip(arrays, garbage, strict=True)]
  result = gae(*padded, gamma=0.9, lam=0.7, mask=insert(mask, False))
  expected = insert(gae(*arrays, gamma=0.9, lam=0.7), 0.0)
  np.testing.assert_array_equal(result, expected)


def test_vmap_over_columns_equals_trailing_axis():
  arrays = random_rollout(4)
  columns = jax.vmap(
    lambda *x: gae(*x, gamma=0.9, lam=0.7), in_axes=1, out_axes=1
  )(*arrays)
  expected = gae(*arrays, gamma=0.9, lam=0.7)
  np.testing.assert_allclose(columns, expected, rtol=1e-6)


def test_shapes_that_differ_are_refused():
  rewards, values, next_values, terminated, truncated = random_rollout(5)
  with pytest.raises(AssertionError):
    gae(
      rewards, values[:-1], next_values, terminated, truncated, gamma=1, lam=1
    )


def test_a_decision_is_judged_against_those_of_its_own_state():
  # Three episodes of group 0 part at the second step; one is alone in group 1.
  actions = jnp.array([[0, 0, 1, 0], [2, 3, 2, 2]])
  returns = jnp.array([[1.0, 0.0, 0.5, 1.0], [1.0, 0.0, 0.5, 1.0]])
  values = jnp.full((2, 4), 0.4)
  advantages = sibling_advantages(
    returns,
    values,
    actions,
    jnp.array([0, 0, 0, 1]),
    mask=jnp.ones((2, 4), bool),
  )
  expected = [
    [1 - 0.9 / 3, 0 - 1.9 / 3, 0.5 - 1.4 / 3, 0.6],
    [1 - 0.4 / 2, 0 - 1.4 / 2, 0.1, 0.6],
  ]
  np.testing.assert_allclose(advantages, expected, atol=1e-6)


def test_siblings_that_have_ended_do_not_count():
  returns = jnp.array([[1.0, jnp.nan], [0.5, 0.25]])
  advantages = sibling_advantages(
    returns,
    jnp.zeros((2, 2)),
    jnp.zeros((2, 2), int),
    jnp.zeros(2, int),
    mask=jnp.array([[T, F], [T, T]]),
  )
  np.testing.assert_allclose(advantages, [[1.0, 0.0], [0.375, 0.0]])


def test_siblings_lower_the_variance_of_the_gradient_and_keep_its_mean():
  # One state, two actions; the return is the action plus a draw per state.
  rng, times = np.random.default_rng(0), 400
  actions = rng.integers(0, 2, (times, 1, 64))
  states = np.repeat(rng.normal(size=(times, 1, 8)), 8, axis=-1)
  zeros, everywhere = jnp.zeros((1, 64)), jnp.ones((1, 64), bool)
  gradients = {}
  for size in (1, 8):
    group = jnp.arange(64) // size
    advantages = jax.jit(
      jax.vmap(
        lambda returns, actions, group=group: sibling_advantages(
          returns, zeros, actions, group, mask=everywhere
        )
      )
    )(actions + 3 * states, actions)
    # d log pi(a) / d logit of action 1, at equal probabilities.
    gradients[size] = np.mean((actions - 0.5) * np.asarray(advantages), (1, 2))
  assert np.var(gradients[8]) < np.var(gradients[1]) / 3
  for found in gradients.values():
    error = np.std(found) / len(found) ** 0.5
    assert abs(np.mean(found) - 0.25) < 4 * error
