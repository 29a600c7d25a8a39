"""Contextual bandit with a linear model per action: LinUCB.

Li et al., "A contextual-bandit approach to personalized news article
recommendation", arXiv 1003.0146, algorithm 1 (disjoint linear models). It sees
what the controller sees and learns the immediate reward of each action; that it
cannot plan is what it is a baseline for.
"""

from __future__ import annotations

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp


class LinearBandit(NamedTuple):
  """Sufficient statistics of one ridge regression per action.

  Attributes:
    precision: [A, O, O], ridge * I + sum of x x^T.
    response: [A, O], sum of x * reward.
  """

  precision: jax.Array
  response: jax.Array


def initial(
  num_actions: int, num_features: int, ridge: float = 1.0
) -> LinearBandit:
  """A bandit that has seen nothing."""
  eye = ridge * jnp.eye(num_features)
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
  """Takes in a batch.

  Args:
    bandit: the statistics so far.
    features: [B, O].
    actions: int [B].
    rewards: [B].
    mask: bool [B]; rows that are False do not count.
  """
  chex.assert_rank([features, actions, rewards, mask], [2, 1, 1, 1])
  chosen = jax.nn.one_hot(actions, bandit.response.shape[0]) * mask[:, None]
  return LinearBandit(
    bandit.precision + jnp.einsum('ba,bo,bp->aop', chosen, features, features),
    bandit.response + jnp.einsum('ba,bo,b->ao', chosen, features, rewards),
  )


def scores(
  bandit: LinearBandit, features: jax.Array, exploration: float
) -> jax.Array:
  """Upper confidence bounds [B, A]: x^T theta + alpha sqrt(x^T P^-1 x)."""
  chex.assert_rank(features, 2)
  inverse = jnp.linalg.inv(bandit.precision)
  theta = jnp.einsum('aop,ap->ao', inverse, bandit.response)
  width = jnp.einsum('bo,aop,bp->ba', features, inverse, features)
  return features @ theta.T + exploration * jnp.sqrt(jnp.maximum(width, 0.0))
