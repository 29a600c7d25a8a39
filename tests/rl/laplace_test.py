"""The posterior of a generalised linear model."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from promptrl_jax.rl import laplace

RNG = np.random.default_rng(0)
INPUTS = jnp.asarray(RNG.normal(size=(40, 5)), jnp.float32)
PRECISION = jnp.array([1.0, 2.0, 0.5, 4.0, 1.0])


def test_squared_errors_are_exact():
  target, noise = jnp.asarray(RNG.normal(size=40), jnp.float32), 0.3
  posterior = laplace.laplace_posterior(
    INPUTS,
    lambda s: jnp.square(s - target) / (2 * noise**2),
    lambda s: jnp.full_like(s, 1 / noise**2),
    PRECISION,
    steps=1,
  )
  precision = INPUTS.T @ INPUTS / noise**2 + jnp.diag(PRECISION)
  mean = jnp.linalg.solve(precision, INPUTS.T @ target / noise**2)
  np.testing.assert_allclose(posterior.mean, mean, rtol=1e-4)
  normal = jax.random.normal(jax.random.key(0), (20_000, 5))
  drawn = posterior.draw(normal)
  np.testing.assert_allclose(
    jnp.cov(drawn.T) * precision.diagonal(),
    jnp.linalg.inv(precision) * precision.diagonal(),
    atol=0.05,
  )
  np.testing.assert_allclose(drawn.mean(0), mean, atol=0.01)


@pytest.mark.parametrize('precision', [1.0, 1e-3])
def test_the_mode_of_a_logistic_regression_is_found(precision):
  """With the weak prior, all rows can be told apart: full steps overshoot."""
  labels = jnp.asarray(INPUTS[:, 0] + INPUTS[:, 1] > 0, jnp.float32)
  losses = lambda s: optax.sigmoid_binary_cross_entropy(s, labels)
  curvature = lambda s: jax.nn.sigmoid(s) * jax.nn.sigmoid(-s)
  prior = jnp.full(5, precision)
  posterior = jax.jit(
    lambda: laplace.laplace_posterior(INPUTS, losses, curvature, prior, 20)
  )()

  def objective(weights):
    penalty = precision * jnp.sum(jnp.square(weights)) / 2
    return jnp.sum(losses(INPUTS @ weights)) + penalty

  gradient = jax.grad(objective)(posterior.mean)
  assert jnp.abs(gradient).max() < 2e-3
  np.testing.assert_allclose(
    posterior.factor @ posterior.factor.T,
    jax.hessian(objective)(posterior.mean),
    rtol=1e-3,
    atol=1e-3,
  )


def test_without_rows_that_count_the_prior_is_left():
  nothing = lambda s: jnp.zeros_like(s)
  posterior = laplace.laplace_posterior(INPUTS, nothing, nothing, PRECISION)
  np.testing.assert_array_equal(posterior.mean, 0)
  drawn = posterior.draw(jnp.ones((1, 5)))[0]
  np.testing.assert_allclose(drawn, 1 / np.sqrt(PRECISION), rtol=1e-4)
