"""Losses: numbers worked by hand, gradients, and identities."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from promptrl_jax.rl import losses
from promptrl_jax.rl.policy_losses import make_policy_loss_fn, ppo

CLIP_CASES = [
  # ratio, advantage, objective, clipped
  (1.5, 1.0, 1.2, True),
  (1.5, -1.0, -1.5, False),
  (0.5, 1.0, 0.5, False),
  (0.5, -1.0, -0.8, True),
]


@pytest.mark.parametrize(
  ('ratio', 'advantage', 'objective', 'clipped'), CLIP_CASES
)
def test_clipped_objective_and_its_gradient(
  ratio, advantage, objective, clipped
):
  def loss_fn(logps):
    return losses.policy_loss(
      ppo, logps, jnp.array([-2.0]), jnp.array([advantage])
    )

  logps = jnp.array([-2.0 + np.log(ratio)])
  (loss, metrics), gradient = jax.value_and_grad(loss_fn, has_aux=True)(logps)
  np.testing.assert_allclose(-loss, objective, rtol=1e-6)
  expected = 0.0 if clipped else -ratio * advantage
  np.testing.assert_allclose(gradient, [expected], rtol=1e-6)
  assert metrics['clip_fraction'] == float(clipped)


@pytest.mark.parametrize(('ratio', 'objective'), [(1.5, 1.28), (1.25, 1.25)])
def test_the_two_sides_clip_apart(ratio, objective):
  loss_fn = make_policy_loss_fn('ppo', clip_low=0.2, clip_high=0.28)
  loss, _ = loss_fn(jnp.log(jnp.array([ratio])), jnp.zeros(1), jnp.ones(1))
  np.testing.assert_allclose(-loss, objective, rtol=1e-6)


def test_gradient_at_ratio_one_is_that_of_reinforce():
  logps = jnp.array([-0.3, -1.0, -2.0])
  advantages = jnp.array([1.0, -2.0, 0.5])
  gradient = jax.grad(
    lambda x: losses.policy_loss(ppo, x, logps, advantages)[0]
  )(logps)
  np.testing.assert_allclose(gradient, -advantages, rtol=1e-6)


def test_approximate_kl_is_k3():
  _, metrics = losses.policy_loss(
    ppo, jnp.array([-1.2, -1.0]), jnp.array([-1.0, -1.0]), jnp.ones(2)
  )
  np.testing.assert_allclose(metrics['approx_kl'], 0.0187308, atol=1e-6)


def test_padding_reaches_neither_losses_nor_gradients():
  mask = jnp.array([True, True, False])
  x = jnp.array([-0.5, -1.0, jnp.nan])
  old = jnp.array([-0.6, -0.9, jnp.inf])
  target = jnp.array([1.0, -1.0, jnp.nan])

  def total(x, old, target, mask):
    policy, metrics = losses.policy_loss(ppo, x, old, target, mask)
    value = losses.value_loss(x, old, target, mask, clip=0.1)
    return policy + value + sum(metrics.values())

  value, gradient = jax.value_and_grad(total)(x, old, target, mask)
  short, short_gradient = jax.value_and_grad(total)(
    x[:2], old[:2], target[:2], mask[:2]
  )
  np.testing.assert_allclose(value, short, rtol=1e-6)
  np.testing.assert_allclose(gradient, [*short_gradient, 0.0], rtol=1e-6)


def test_value_loss_is_the_sum_of_squared_errors():
  loss = losses.value_loss(jnp.array([1.0, 2.0]), jnp.zeros(2), jnp.zeros(2))
  assert loss == 5.0


def test_clipped_value_loss_is_never_smaller():
  # Moved from 0 to 1 towards 1: within a clip of 0.2 the error is 0.64.
  loss = losses.value_loss(jnp.ones(1), jnp.zeros(1), jnp.ones(1), clip=0.2)
  np.testing.assert_allclose(loss, 0.64, rtol=1e-6)
  values, old, returns = jax.random.normal(jax.random.key(0), (3, 50))
  each = jax.vmap(losses.value_loss, in_axes=(0, 0, 0, None, None))
  plain = each(values, old, returns, None, None)
  clipped = each(values, old, returns, None, 0.2)
  assert (clipped >= plain).all() and (clipped > plain).any()


def test_no_gradient_reaches_targets():
  x = jnp.array([0.3])

  def total(old, target):
    policy, _ = losses.policy_loss(ppo, x, old, target)
    return policy + losses.value_loss(x, old, target, clip=0.1)

  gradients = jax.grad(total, argnums=(0, 1))(x * 2, x * 3)
  np.testing.assert_array_equal(gradients, jnp.zeros((2, 1)))


def test_uniform_entropy_is_the_log_of_the_number_of_actions():
  np.testing.assert_allclose(
    losses.categorical_entropy(jnp.full((2, 3), 7.0)), 1.098612, atol=1e-6
  )
  mask = jnp.array([True, False, True])
  np.testing.assert_allclose(
    losses.categorical_entropy(jnp.zeros(3), mask), np.log(2), atol=1e-6
  )


def test_forbidden_actions_have_probability_zero():
  logits = jnp.array([0.1, 50.0, -0.3])
  mask = jnp.array([True, False, True])
  logps = jax.vmap(losses.categorical_logps, in_axes=(None, 0, None))(
    logits, jnp.arange(3), mask
  )
  probabilities = jnp.exp(logps)
  assert probabilities[1] == 0.0
  expected = jax.nn.softmax(logits[jnp.array([0, 2])])
  np.testing.assert_allclose(probabilities[jnp.array([0, 2])], expected)


@pytest.mark.parametrize(
  'mask', [[True, False, True], [False, True, False], [False, False, False]]
)
def test_masked_distributions_have_finite_gradients(mask):
  mask = jnp.array(mask)

  def total(logits):
    entropy = losses.categorical_entropy(logits, mask)
    return entropy + losses.categorical_logps(logits, jnp.array(1), mask)

  value, gradient = jax.value_and_grad(total)(jnp.array([0.1, 50.0, -0.3]))
  assert jnp.isfinite(value) and jnp.isfinite(gradient).all()
  np.testing.assert_array_equal(gradient[~mask], 0.0)


def test_losses_work_under_jit_and_vmap():
  logps, old, advantages = jax.random.normal(jax.random.key(0), (3, 4, 5))
  rows, _ = jax.jit(jax.vmap(make_policy_loss_fn('ppo')))(
    logps, old, advantages
  )
  whole, _ = losses.policy_loss(ppo, logps, old, advantages)
  np.testing.assert_allclose(rows.sum(), whole, rtol=1e-5)


def test_shapes_that_would_broadcast_are_refused():
  with pytest.raises(AssertionError):
    losses.policy_loss(ppo, jnp.ones((3, 1)), jnp.ones(3), jnp.ones(3))
  with pytest.raises(AssertionError):
    losses.value_loss(jnp.ones((3, 1)), jnp.ones(3), jnp.ones(3))
