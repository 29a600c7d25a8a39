"""The Gaussian posterior of a generalised linear model, in closed form.

Few ratings leave much unknown, and what is chosen next depends on how much. For
weights w with a Gaussian prior and one linear predictor s = w x per row, the
mode is found by Newton's method with the expected curvature (Fisher scoring),
and the posterior is the Gaussian around it with that curvature: MacKay, 1992, A
Practical Bayesian Framework for Backpropagation Networks. For squared errors of
s itself it is exact.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

# Lengths of a step that are tried, beside none at all.
_LENGTHS = (1.0, 0.5, 0.25, 0.125)
# Added to the diagonal, in shares of its mean, as float32 rounds.
_JITTER = 1e-6


class Posterior(NamedTuple):
  """N(mean, (L L^T)^-1).

  Attributes:
    mean: `[P]`.
    factor: `[P, P]`, the lower Cholesky factor L of the precision.
  """

  mean: jax.Array
  factor: jax.Array

  def draw(self, noise: jax.Array) -> jax.Array:
    """Returns weights `[K, P]` of standard normal numbers of that shape.

    The same numbers give draws that move with the posterior.
    """
    spread = jax.scipy.linalg.solve_triangular(
      self.factor, noise.T, lower=True, trans=1
    )
    return self.mean + spread.T


def laplace_posterior(
  inputs: jax.Array,
  losses_fn: Callable[[jax.Array], jax.Array],
  curvature_fn: Callable[[jax.Array], jax.Array],
  precision: jax.Array,
  steps: int = 8,
) -> Posterior:
  """Fits the posterior, from weights of 0.

  Args:
    inputs: `[M, P]` of each row.
    losses_fn: predictors `[M]` -> `[M]` negative log-likelihoods, each a
      function of its own predictor.
    curvature_fn: predictors `[M]` -> `[M]` expected second derivatives of
      these, 0 or more.
    precision: `[P]` of the prior, whose mean is 0; above 0.
    steps: of Newton's method.
  """

  def factor(weights: jax.Array) -> jax.Array:
    curvature = curvature_fn(inputs @ weights)
    matrix = jnp.einsum('mp,m,mq->pq', inputs, curvature, inputs)
    matrix += jnp.diag(precision)
    jitter = _JITTER * jnp.trace(matrix) / precision.size
    return jnp.linalg.cholesky(matrix + jitter * jnp.eye(precision.size))

  def objective(weights: jax.Array) -> jax.Array:
    penalty = jnp.sum(precision * jnp.square(weights)) / 2
    return jnp.sum(losses_fn(inputs @ weights)) + penalty

  def step(weights: jax.Array, _: None):
    gradient = jax.grad(objective)(weights)
    direction = jax.scipy.linalg.cho_solve((factor(weights), True), gradient)
    tried = weights - jnp.array(_LENGTHS)[:, None] * direction
    tried = jnp.concatenate([tried, weights[None]])
    worth = jax.vmap(objective)(tried)
    best = jnp.argmin(jnp.where(jnp.isfinite(worth), worth, jnp.inf))
    return tried[best], None

  first = jnp.zeros_like(precision)
  # An accelerator would round the factors of products.
  with jax.default_matmul_precision('highest'):
    mean, _ = jax.lax.scan(step, first, None, length=steps)
    return Posterior(mean, factor(mean))
