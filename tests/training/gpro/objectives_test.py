"""Losses of rows with several kinds of feedback, drift and temperatures."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from promptrl_jax.models.candidates import CandidateCritic
from promptrl_jax.rl import laplace, preference
from promptrl_jax.training.gpro import drift, objectives, replay, temperature
from promptrl_jax.training.gpro.config import GPROConfig

KIND = jnp.array([replay.RATING, replay.THUMBS, replay.PAIR, replay.PAIR])
SCORES = jnp.array([0.0, 1.0, 1.5, 0.0])  # of pairs, the difference
REWARD = jnp.array([0.75, 0.0, 1.0, 0.5])


def test_a_batch_of_all_kinds_by_hand():
  weight = jnp.array([1.0, 2.0, 0.0, 3.0])
  rows = objectives.Feedback(REWARD, KIND, weight)
  # (0.5 - 0.75)^2 / 0.08; log(1 + e); log(1 + e^-1.5); log 2 for a tie.
  expected = [0.78125, 1.3132617, 0.2014133, 0.6931472]
  np.testing.assert_allclose(
    objectives.critic_losses(SCORES, rows, rating_noise=0.2),
    np.multiply(weight, expected),
    rtol=1e-5,
  )


def test_a_pair_has_the_likelihood_of_preference_learning():
  chosen, rejected = jnp.array([0.3, -1.0, 2.0]), jnp.array([0.5, -2.0, 0.0])
  kind = jnp.full(3, replay.PAIR)
  rows = objectives.Feedback(jnp.ones(3), kind, jnp.array([1.0, 2.0, 0.5]))
  zeros = jnp.zeros(3)
  loss, _ = preference.preference_loss(
    chosen, rejected, zeros, zeros, rows.weight, beta=1.0
  )
  own = objectives.critic_losses(chosen - rejected, rows, rating_noise=0.2)
  np.testing.assert_allclose(jnp.sum(own), loss, rtol=1e-6)
  # It is the same pair if the other side is the preferred one.
  turned = rows._replace(reward=zeros)
  other = objectives.critic_losses(rejected - chosen, turned, rating_noise=0.2)
  np.testing.assert_allclose(own, other, rtol=1e-6)


def test_the_curvature_is_what_the_second_derivative_is_expected_to_be():
  rows = objectives.Feedback(REWARD, KIND, jnp.array([1.0, 2.0, 1.0, 3.0]))
  # Where a rating is as expected, and at any thumb and pair.
  rows = rows._replace(reward=REWARD.at[0].set(jax.nn.sigmoid(SCORES[0])))
  of = {'rows': rows, 'rating_noise': 0.2}
  total = lambda s: jnp.sum(objectives.critic_losses(s, **of))
  np.testing.assert_allclose(
    objectives.critic_curvature(SCORES, **of),
    jnp.diag(jax.hessian(total)(SCORES)),
    rtol=1e-5,
  )


def test_the_mode_of_a_batch_of_all_kinds_is_found_in_a_few_steps():
  rng = np.random.default_rng(0)
  inputs = jnp.asarray(rng.normal(size=(90, 6)), jnp.float32)
  score = inputs @ jnp.asarray(rng.normal(size=6), jnp.float32)
  kind = jnp.arange(90) % 3 + replay.RATING
  rating = jax.nn.sigmoid(score) + 0.2 * rng.normal(size=90)
  reward = jnp.where(kind == replay.RATING, rating.clip(0, 1), score > 0)
  rows = objectives.Feedback(reward, kind, jnp.ones(90))
  of = {'rows': rows, 'rating_noise': 0.2}
  losses_fn = lambda s: objectives.critic_losses(s, **of)
  precision = objectives.prior_precision(6, 1.5)
  posterior = laplace.laplace_posterior(
    inputs,
    losses_fn,
    lambda s: objectives.critic_curvature(s, **of),
    precision,
  )

  def objective(weights):
    penalty = jnp.sum(precision * weights**2) / 2
    return jnp.sum(losses_fn(inputs @ weights)) + penalty

  gradient = jax.grad(objective)
  start = jnp.abs(gradient(jnp.zeros(6))).max()
  assert jnp.abs(gradient(posterior.mean)).max() < 1e-3 * start
  assert np.corrcoef(inputs @ posterior.mean, score)[0, 1] > 0.95


@pytest.mark.parametrize(('clip', 'is_followed'), [(0.1, False), (1.0, True)])
def test_a_temperature_is_followed_as_far_as_the_clip(clip, is_followed):
  config = GPROConfig(clip=clip, entropy_coef=0.0)
  half = jnp.log(jnp.array([0.5]))
  rows = temperature.TemperatureRows(
    jnp.array([0]), half, half, jnp.array([1.0])
  )
  # It has become 1.6 times as probable, and was better than expected.
  logits = jnp.log(jnp.array([[0.8, 0.2]]))
  gradient = jax.grad(
    lambda x: temperature.loss(x, jnp.zeros(1), rows, config)[0]
  )(logits)
  assert bool(jnp.any(gradient != 0)) == is_followed


def make_replay(**rows):
  config = GPROConfig(features=1, candidates=3, capacity=4)
  changes = {name: jnp.asarray(value) for name, value in rows.items()}
  return replay.empty(config)._replace(**changes)


def test_disappointments_and_rewards_by_hand():
  scores = jnp.array([[0.2, 0.5, 0.9]] * 4)
  rows = make_replay(
    kind=KIND.at[3].set(replay.NONE),
    reward=REWARD,
    shown=[0, 2, 2, 1],
    other=[0, 0, 1, 0],
  )
  found = objectives.disappointments(rows, scores)
  # 0.75 is more than 0.2. Of 0.9 and 0.5, the first is preferred with 9 : 1.
  np.testing.assert_allclose(found[:3], [0, 0.9, 0.1], rtol=1e-5)
  np.testing.assert_allclose(
    objectives.rewards(rows, scores), [0.75, 0.0, 0.9, 0.5], rtol=1e-6
  )


def test_only_a_rise_of_the_errors_is_a_change():
  rng = np.random.default_rng(0)
  low, high = rng.uniform(0.1, 0.2, 40), rng.uniform(0.5, 0.6, 10)
  errors = np.concatenate([low, high, np.full(14, 9.0)])
  time = np.concatenate([np.arange(50), np.full(14, -1)]) + 7
  valid = np.arange(64) < 50
  order = rng.permutation(64)
  test = jax.jit(drift.change_point)
  z, when = test(errors[order], time[order], valid[order])
  # All 40 before it, and the 10 after it: the last of the former is at 46.
  within = 40 * low.var() + 10 * high.var()
  by_hand = (high.mean() - low.mean()) / np.sqrt(within / 48 * (1 / 40 + 0.1))
  np.testing.assert_allclose(z, by_hand, rtol=1e-4)
  assert when == 46
  assert test(errors[:50][::-1], time[:50], valid[:50])[0] == 0
  assert test(errors[30:50], time[30:50], valid[30:50])[0] == 0  # too few


def test_critics_are_drawn_from_the_prior_that_is_learned_with():
  critic = CandidateCritic(hidden=(3,), members=4000, scale=2.0)
  head = critic.init(jax.random.key(0), jnp.zeros((1, 5)))['params']['head']
  precision = objectives.prior_precision(5 + 3 + 1, 2.0)
  variance = [*jnp.var(head['kernel'], axis=1), jnp.var(head['bias'])]
  np.testing.assert_allclose(precision * jnp.array(variance), 1, atol=0.1)
