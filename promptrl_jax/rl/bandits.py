"""Contextual bandits with a linear model per action.

LinUCB: Li et al., "A contextual-bandit approach to personalized news article
recommendation", arXiv 1003.0146, algorithm 1 (disjoint linear models). Thompson
sampling: Agrawal and Goyal, "Thompson sampling for contextual bandits with
linear payoffs", arXiv 1209.3352. Both read the observations of the controller
and learn the reward of each action from the same statistics. As they cannot
plan, they are baselines for policies that do.
"""

from __future__ import annotations

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp


class LinearBandit(NamedTuple):
  """Sufficient statistics of one ridge regression per action.

  Attributes:
    precision: `[A, O, O]`, identity + sum of x x^T.
    response: `[A, O]`, sum of x * reward.
  """

  precision: jax.Array
  response: jax.Array


class LinearPosterior(NamedTuple):
  """What a bandit knows of the parameters of its actions.

  Attributes:
    theta: `[A, O]`, precision_a^-1 response_a, their means. It is all that
      choosing without exploration takes.
    covariance: `[A, O, O]`, precision_a^-1.
  """

  theta: jax.Array
  covariance: jax.Array


def initial(num_actions: int, num_features: int) -> LinearBandit:
  """Returns the statistics before the first step, with a ridge of 1."""
  eye = jnp.eye(num_features)
  return LinearBandit(
    jnp.tile(eye, (num_actions, 1, 1)), jnp.zeros((num_actions, num_features))
  )


def update(
  bandit: LinearBandit,
  features: jax.Array,
  actions: jax.Array,
  rewards: jax.Array,
  mask: jax.Array,
) -> LinearBandit:
  """Returns the statistics after a batch of M steps.

  Args:
    bandit: the statistics so far.
    features: `[M, O]` observations.
    actions, rewards, mask: `[M]`; the mask says which steps are valid.
  """
  chex.assert_rank([features, actions, rewards, mask], [2, 1, 1, 1])
  chosen = jax.nn.one_hot(actions, bandit.response.shape[0]) * mask[:, None]
  return LinearBandit(
    bandit.precision + jnp.einsum('ea,eo,ep->aop', chosen, features, features),
    bandit.response + jnp.einsum('ea,eo,e->ao', chosen, features, rewards),
  )


def posterior(bandit: LinearBandit) -> LinearPosterior:
  """Returns what the statistics say of the parameters of each action."""
  covariance = jnp.linalg.inv(bandit.precision)
  return LinearPosterior(
    jnp.einsum('aop,ap->ao', covariance, bandit.response), covariance
  )


def scores(
  posterior: LinearPosterior, features: jax.Array, exploration: float
) -> jax.Array:
  """Returns the upper confidence bound `[E, A]` of each action.

    score_a = x^T theta_a + alpha sqrt(x^T precision_a^-1 x)

  Features x are `[E, O]` observations, alpha is the exploration.
  """
  means, widths = _predictive(posterior, features)
  return means + exploration * widths


def thompson_scores(
  posterior: LinearPosterior,
  features: jax.Array,
  scale: float,
  key: jax.Array,
) -> jax.Array:
  """Returns scores `[E, A]` under parameters drawn from their posteriors.

    theta_a ~ N(precision_a^-1 response_a, scale^2 precision_a^-1)

  One draw for each row and action. As the models are disjoint, the score
  x^T theta_a is drawn instead of theta_a: it is normal with the mean of LinUCB
  and a standard deviation of scale sqrt(x^T precision_a^-1 x).
  """
  means, widths = _predictive(posterior, features)
  return means + scale * widths * jax.random.normal(key, means.shape)


def _predictive(
  posterior: LinearPosterior, features: jax.Array
) -> tuple[jax.Array, jax.Array]:
  """Means `[E, A]` of x^T theta_a, and sqrt(x^T precision_a^-1 x)."""
  chex.assert_rank(features, 2)
  width = jnp.einsum('eo,aop,ep->ea', features, posterior.covariance, features)
  return features @ posterior.theta.T, jnp.sqrt(jnp.maximum(width, 0.0))
