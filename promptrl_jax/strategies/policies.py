"""Strategies as policies of the prompt-edit environment.

All of them, learned or not, walk the same environment under the same budget and
leave the same trace; they differ only in how they choose the next action.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from promptrl_jax.envs.editing.rollout import Decision, Policy
from promptrl_jax.rl import bandits

# (params, observations, action masks, keys [N]) -> actions, logps, values
ActFn = Callable[..., tuple[jax.Array, jax.Array, jax.Array]]


def open_loop(
  operators: Sequence[str],
  actions: Sequence[str],
  then: str = '',
) -> Policy:
  """The operators of a list one after the other, then always `then`.

  That is `resample` by default, or `keep` without it. An operator that is not
  available is replaced by `then`, and that by `keep`.
  """
  then = then or ('resample' if 'resample' in actions else 'keep')
  index = {name: number for number, name in enumerate(actions)}
  if missing := {'keep', then, *operators} - set(index):
    raise ValueError(
      f'operators {sorted(missing)}: expected some of {tuple(actions)}'
    )

  def policy(observations, masks, step):
    del observations
    chosen = np.full(len(masks), index['keep'], np.int32)
    for name in (then, *operators[step : step + 1]):
      column = index[name]
      chosen = np.where(masks[:, column], column, chosen).astype(np.int32)
    return _without_values(chosen)

  return policy


def fixed(action: str, actions: Sequence[str]) -> Policy:
  """Always the same action, `keep` where it is not available."""
  return open_loop((), actions, then=action)


def uniform(seed: int) -> Policy:
  """A random action, uniform over those that are available."""

  def policy(observations, masks, step):
    del observations
    draws = np.random.default_rng([seed, step]).random(masks.shape)
    return _without_values(np.argmax(draws * masks, axis=1).astype(np.int32))

  return policy


def controller(act_fn: ActFn, params: Any, seed: int) -> Policy:
  """The actor-critic; greedy or sampled as `act_fn` was made."""

  def policy(observations, masks, step):
    base = jax.random.fold_in(jax.random.key(seed), step)
    keys = jax.random.split(base, len(observations))
    actions, logps, values = jax.device_get(
      act_fn(params, observations, masks, keys)
    )
    return Decision(actions, logps, values)

  return policy


def _without_values(actions: np.ndarray) -> Decision:
  zeros = np.zeros(len(actions), np.float32)
  return Decision(actions, zeros, zeros)


def linear(weights: np.ndarray) -> Policy:
  """The action with the highest score x^T theta_a, theta `[A, O]`."""

  def policy(observations, masks, step):
    del step
    return _highest(observations @ weights.T, masks)

  return policy


def bandit(posterior: bandits.LinearPosterior, exploration: float) -> Policy:
  """The action with the highest score of a contextual bandit, LinUCB."""
  score_fn = jax.jit(bandits.scores)

  def policy(observations, masks, step):
    del step
    return _highest(score_fn(posterior, observations, exploration), masks)

  return policy


def thompson(
  posterior: bandits.LinearPosterior, scale: float, key: jax.Array
) -> Policy:
  """The action that is best under parameters drawn from their posteriors."""
  score_fn = jax.jit(bandits.thompson_scores)

  def policy(observations, masks, step):
    drawn = jax.random.fold_in(key, step)
    return _highest(score_fn(posterior, observations, scale, drawn), masks)

  return policy


def _highest(scores: np.ndarray | jax.Array, masks: np.ndarray) -> Decision:
  """The action with the highest score of those that are available."""
  chosen = np.where(masks, np.asarray(scores), -np.inf).argmax(axis=1)
  return _without_values(chosen.astype(np.int32))
