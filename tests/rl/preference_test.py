"""Preference pairs: the loss by hand, learning an order, and pairing."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from promptrl_jax.rl.preference import (
  best_and_worst,
  pair_advantages,
  preference_loss,
)


def test_the_loss_by_hand():
  # (-4 + 5) - (-8 + 6) = 3
  loss, metrics = jax.jit(preference_loss)(
    *(jnp.array([x]) for x in (-4.0, -8.0, -5.0, -6.0))
  )
  np.testing.assert_allclose(loss, 0.554355, atol=1e-6)
  np.testing.assert_allclose(metrics['margin'], 0.3, rtol=1e-6)
  assert metrics['accuracy'] == 1


def test_the_gradient_parts_chosen_and_rejected():
  zeros = jnp.zeros(1)
  gradients = jax.grad(
    lambda *x: preference_loss(*x, beta=0.4)[0], argnums=(0, 1, 2, 3)
  )(zeros, zeros, zeros, zeros)
  # -beta sigmoid(-margin) and its opposite; references are constants.
  np.testing.assert_allclose(gradients, [[-0.2], [0.2], [0.0], [0.0]])


def test_extreme_margins_stay_finite():
  zeros = jnp.zeros(2)
  margins = jnp.array([1e4, -1e4])
  loss, gradient = jax.value_and_grad(
    lambda x: preference_loss(x, zeros, zeros, zeros)[0]
  )(margins)
  np.testing.assert_allclose(loss, 1e3)
  np.testing.assert_allclose(gradient, [0.0, -0.1], atol=1e-6)


def test_padding_reaches_neither_loss_nor_gradient():
  arrays = jnp.array([[-1.0, jnp.nan], [-2.0, 0.0], [-1.5, jnp.inf], [-1, 0]])
  mask = jnp.array([True, False])

  def total(chosen, mask):
    loss, metrics = preference_loss(chosen, *arrays[1:], mask)
    return loss + sum(metrics.values())

  value, gradient = jax.value_and_grad(total)(arrays[0], mask)
  short, metrics = preference_loss(*arrays[:, :1])
  np.testing.assert_allclose(value, short + sum(metrics.values()), rtol=1e-6)
  assert gradient[0] != 0 and gradient[1] == 0


def test_scores_learn_a_known_order_from_pairs():
  # Bradley-Terry: the difference of scores is the log-odds of the choices.
  wins = jnp.array([3.0, 1.0])  # first over second, second over first
  zeros = jnp.zeros(2)

  def total(scores):
    return preference_loss(scores, scores[::-1], zeros, zeros, wins, beta=1.0)[
      0
    ]

  def descend(scores, _):
    return scores - 0.2 * jax.grad(total)(scores), None

  scores, _ = jax.lax.scan(descend, zeros, None, 200)
  np.testing.assert_allclose(scores[0] - scores[1], np.log(3.0), rtol=1e-4)


def test_the_best_of_a_group_is_paired_with_its_worst():
  rewards = jnp.array([0.5, 0.9, 0.1, 0.9, 2.0, 2.0, jnp.nan, 7.0])
  groups = jnp.array([0, 0, 0, 0, 1, 1, 1, 3])
  valid = jnp.array([True] * 6 + [False, True])
  best, worst, is_pair = jax.jit(best_and_worst, static_argnums=2)(
    rewards, groups, 4, valid
  )
  np.testing.assert_array_equal(is_pair, [True, False, False, False])
  np.testing.assert_array_equal(best, [1, 0, 0, 0])
  np.testing.assert_array_equal(worst, [2, 0, 0, 0])


def test_reinforce_with_advantages_of_pairs_has_the_gradient_of_pairs():
  rng = np.random.default_rng(0)
  logps, refs = rng.normal(-5, 2, (2, 8)).astype(np.float32)
  rewards = jnp.array([0.0, 1.0, 0.5, 1.0, 0.3, 0.3, 0.2, 0.9])
  groups = jnp.array([0, 0, 0, 1, 2, 2, 3, 3])  # of 1 and 2 there is no pair

  def pairs(logps):
    best, worst, is_pair = best_and_worst(rewards, groups, 4)
    at = lambda x: (x[best], x[worst])
    return preference_loss(
      *at(logps), *at(jnp.asarray(refs)), is_pair, beta=0.3
    )[0]

  worth = jax.jit(pair_advantages, static_argnums=3)(
    logps - refs, rewards, groups, 4, beta=0.3
  )
  expected = jax.grad(pairs)(jnp.asarray(logps))
  assert np.count_nonzero(expected) == 4
  np.testing.assert_allclose(-worth, expected, atol=1e-6)


def test_shapes_that_would_broadcast_are_refused():
  with pytest.raises(AssertionError):
    preference_loss(jnp.ones(3), jnp.ones(3), jnp.ones(3), jnp.ones(1))
  with pytest.raises(AssertionError):
    preference_loss(*(jnp.ones((3, 2)),) * 4)
