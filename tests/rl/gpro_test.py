"""Candidates with a critic: by hand, unbiased, and learning a bandit."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from promptrl_jax.rl import gpro, losses
from promptrl_jax.rl.policy_losses import ppo

SCORES = jnp.array([[0.2, 0.6, 0.1], [0.5, 0.5, 0.5]])
REWARDS = jnp.array([1.0, 0.0])
SHOWN = jnp.array([1, 0])
OLD_LOGPS = jnp.log(jnp.array([[0.5, 0.25, 0.25], [0.1, 0.2, 0.7]]))


def test_the_expected_score_is_the_baseline():
  advantages = jax.jit(gpro.critic_advantages)(REWARDS, SCORES, OLD_LOGPS)
  # 1 - (0.1 + 0.15 + 0.025), and 0 - 0.5
  np.testing.assert_allclose(advantages, [0.725, -0.5], rtol=1e-6)
  mask = jnp.array([[True, True, False], [False, False, True]])
  dirty = jnp.where(mask, SCORES, jnp.nan)
  advantages = gpro.critic_advantages(REWARDS, dirty, OLD_LOGPS, mask)
  np.testing.assert_allclose(advantages, [0.75, -0.35], rtol=1e-6)


def test_whatever_the_critic_says_the_gradient_climbs_the_reward():
  logits, scores = jax.random.normal(jax.random.key(1), (2, 1, 4))
  rewards = jnp.array([0.3, 0.5, 0.8, 0.4])
  old_logps = jax.nn.log_softmax(logits)[0]

  def total(logits):
    # Each candidate is shown once, and weighs what it is shown with.
    logps = jax.nn.log_softmax(logits)[0]
    advantages = gpro.critic_advantages(
      rewards, jnp.tile(scores, (4, 1)), jnp.tile(old_logps, (4, 1))
    )
    return losses.policy_loss(
      ppo, logps, old_logps, advantages, jnp.exp(old_logps)
    )[0]

  expected = jax.grad(lambda x: -jax.nn.softmax(x)[0] @ rewards)(logits)
  np.testing.assert_allclose(jax.grad(total)(logits), expected, atol=1e-6)


@pytest.mark.parametrize(
  ('max_weight', 'expected'),
  [
    (1.0, [[0.2, 1.0, 0.1], [0.0, 0.5, 0.5]]),
    # Bounded by 5: 0.6 + 4 * 0.4, and 0.5 - 5 * 0.5 in place of 10.
    (5.0, [[0.2, 2.2, 0.1], [-2.0, 0.5, 0.5]]),
  ],
)
def test_imputed_rewards_by_hand(max_weight, expected):
  rewards = gpro.impute_rewards(
    REWARDS, SHOWN, SCORES, OLD_LOGPS, max_weight=max_weight
  )
  np.testing.assert_allclose(rewards, expected, rtol=1e-5)


def test_imputed_rewards_are_unbiased_without_a_bound():
  old_logps, scores = OLD_LOGPS[:1], SCORES[:1]
  true_rewards = jnp.array([0.3, 0.9, 0.4])
  mean = jnp.zeros(3)
  for shown in range(3):
    rewards = gpro.impute_rewards(
      true_rewards[shown][None],
      jnp.array([shown]),
      scores,
      old_logps,
      max_weight=float('inf'),
    )
    mean += jnp.exp(old_logps[0, shown]) * rewards[0]
  np.testing.assert_allclose(mean, true_rewards, rtol=1e-5)


def test_candidates_are_standardised_within_their_prompt():
  rewards = jnp.array([[1.0, 0.0, 0.0, jnp.nan], [0.1, 0.1, 0.1, 0.1]])
  mask = jnp.array([[True, True, True, False], [True] * 4])
  advantages = jax.jit(gpro.candidate_advantages)(rewards, mask)
  np.testing.assert_allclose(
    advantages[0], [2**0.5, -(0.5**0.5), -(0.5**0.5), 0.0], rtol=1e-5
  )
  np.testing.assert_array_equal(advantages[1], 0.0)


def test_the_gradient_at_ratio_one_is_that_of_the_expected_advantage():
  logits, advantages = jax.random.normal(jax.random.key(0), (2, 3, 4))

  def total(logits):
    old_logps = jax.nn.log_softmax(logits)
    loss, _ = gpro.candidate_policy_loss(logits, old_logps, advantages)
    return loss

  expected = jax.grad(lambda x: -jnp.sum(jax.nn.softmax(x) * advantages))(
    logits
  )
  np.testing.assert_allclose(jax.grad(total)(logits), expected, atol=1e-6)
  rows = jax.vmap(lambda x, a: gpro.candidate_policy_loss(x, x, a)[0])(
    jax.nn.log_softmax(logits)[:, None], advantages[:, None]
  )
  np.testing.assert_allclose(rows.sum(), total(logits), rtol=1e-5)


def test_invalid_candidates_and_prompts_have_no_influence():
  mask = jnp.array([[True, True, False], [False, False, False]])
  logits = jnp.array([[0.5, -0.5, jnp.nan], [jnp.nan] * 3])
  old_logps = jnp.array([[-0.7, -0.69, jnp.nan], [jnp.nan] * 3])
  advantages = jnp.array([[1.0, -1.0, jnp.nan], [jnp.nan] * 3])

  def total(logits, old_logps, advantages, mask=None):
    loss, metrics = gpro.candidate_policy_loss(
      logits, old_logps, advantages, mask
    )
    return loss + sum(metrics.values())

  value, gradient = jax.value_and_grad(total)(
    logits, old_logps, advantages, mask
  )
  short, short_gradient = jax.value_and_grad(total)(
    logits[:1, :2], old_logps[:1, :2], advantages[:1, :2]
  )
  np.testing.assert_allclose(value, short, rtol=1e-6)
  np.testing.assert_allclose(gradient[0], [*short_gradient[0], 0.0], rtol=1e-6)
  np.testing.assert_array_equal(gradient[1], 0.0)


THUMBS_UP = jnp.array([0.3, 0.5, 0.8, 0.4])
PROMPTS = 64


def loss_of(option, params, old, shown, rewards):
  logits = jnp.broadcast_to(params['actor'], (PROMPTS, 4))
  old_logps = jax.nn.log_softmax(jnp.broadcast_to(old['actor'], (PROMPTS, 4)))
  scores = jnp.broadcast_to(old['critic'], (PROMPTS, 4))
  if option == 'shown':
    policy, _ = losses.policy_loss(
      ppo,
      losses.categorical_logps(logits, shown),
      jnp.take_along_axis(old_logps, shown[:, None], axis=1)[:, 0],
      gpro.critic_advantages(rewards, scores, old_logps),
    )
  else:
    imputed = gpro.impute_rewards(
      rewards, shown, scores, old_logps, max_weight=10.0
    )
    policy, _ = gpro.candidate_policy_loss(
      logits, old_logps, gpro.candidate_advantages(imputed)
    )
  values = params['critic'][shown]
  critic = losses.value_loss(values, values, rewards)
  return (policy + critic) / PROMPTS, critic / PROMPTS


@pytest.mark.parametrize('option', ['shown', 'candidates'])
def test_a_bandit_is_learned_in_200_updates(option):
  def update(params, key):
    choose, rate = jax.random.split(key)
    shown = jax.random.categorical(choose, params['actor'], shape=(PROMPTS,))
    rewards = jax.random.bernoulli(rate, THUMBS_UP[shown]).astype(jnp.float32)
    gradient, error = jax.grad(loss_of, argnums=1, has_aux=True)(
      option, params, params, shown, rewards
    )
    params = jax.tree.map(lambda p, g: p - 0.4 * g, params, gradient)
    return params, error

  params = {'actor': jnp.zeros(4), 'critic': jnp.zeros(4)}
  keys = jax.random.split(jax.random.key(0), 200)
  params, errors = jax.lax.scan(update, params, keys)
  probabilities = jax.nn.softmax(params['actor'])
  assert jnp.argmax(probabilities) == jnp.argmax(THUMBS_UP)
  assert probabilities.max() > 0.9
  # What is left is the variance of a thumb: 0.8 * 0.2.
  assert errors[-20:].mean() < 0.2 < 0.35 < errors[:3].mean()


def test_bad_input_is_refused():
  with pytest.raises(ValueError, match='max_weight=0.5'):
    gpro.impute_rewards(REWARDS, SHOWN, SCORES, OLD_LOGPS, max_weight=0.5)
  with pytest.raises(AssertionError):
    gpro.critic_advantages(REWARDS[:1], SCORES, OLD_LOGPS)
  with pytest.raises(AssertionError):
    gpro.candidate_policy_loss(SCORES, OLD_LOGPS, SCORES[:, :1])
