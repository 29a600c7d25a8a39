"""Losses of rows with several kinds of feedback, drift and temperatures."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from promptrl_jax.training.gpro import drift, objectives, replay
from promptrl_jax.training.gpro.config import GPROConfig

KIND = jnp.array([replay.RATING, replay.THUMBS, replay.PAIR, replay.PAIR])
SCORES = jnp.array([[0.0, 9.0], [1.0, 9.0], [2.0, 0.5], [0.3, 0.3]])
REWARD = jnp.array([0.75, 0.0, 1.0, 0.5])


def test_a_batch_of_all_kinds_by_hand():
  def loss(scores, weight):
    rows = objectives.Feedback(REWARD, KIND, weight)
    return objectives.critic_loss(scores, rows, rating_noise=0.2)

  each = [loss(SCORES, jnp.eye(4)[i]) for i in range(4)]
  # (0.5 - 0.75)^2 / 0.08; log(1 + e); log(1 + e^-1.5); log 2 for a tie.
  expected = [0.78125, 1.3132617, 0.2014133, 0.6931472]
  np.testing.assert_allclose(each, expected, rtol=1e-5)
  weight = jnp.array([1.0, 2.0, 0.0, 3.0])
  np.testing.assert_allclose(
    loss(SCORES, weight), np.dot(weight, expected), rtol=1e-5
  )
  # What a thumb and a rating say, they say of the shown candidate alone.
  gradient = jax.grad(loss)(SCORES, jnp.ones(4))
  np.testing.assert_array_equal(gradient[:2, 1], 0)
  np.testing.assert_allclose(gradient[3], 0, atol=1e-7)
  np.testing.assert_allclose(gradient[2, 0], -gradient[2, 1])


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


def test_the_prior_counts_each_weight_by_its_variance():
  prior = {'kernel': jnp.ones((4, 2)), 'bias': jnp.zeros(2)}
  params = {'kernel': jnp.full((4, 2), 1.5), 'bias': jnp.ones(2)}
  # 4 * 8 * 0.25 + 2, over 2 * 2^2
  assert objectives.prior_penalty(params, prior, 2.0) == pytest.approx(1.25)
