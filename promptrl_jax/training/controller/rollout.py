"""Episodes of one iteration: which are played, and what PPO learns from them.

draw_batch -> envs.editing.rollout.collect -> Trajectories [T, N]
  -> make_batch: advantages, once, over the whole rollout -> PPOBatch [M]
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from promptrl_jax.envs.editing.rollout import Trajectories
from promptrl_jax.rl.advantages import gae, sibling_advantages
from promptrl_jax.rl.masked import normalize
from promptrl_jax.training.controller.config import ControllerConfig, PPOConfig

_FREE = 0.25  # share of the episodes in which tokens cost nothing


@flax.struct.dataclass
class PPOBatch:
  """M steps in no order, with their advantages and returns.

  Attributes:
    observations: `[M, O]` float32.
    action_masks: `[M, A]` bool, actions that were allowed.
    actions: `[M]` int32.
    old_logps: `[M]` float32, log-probability at the time of acting.
    old_values: `[M]` float32, value of the observation at that time.
    advantages: `[M]` float32, normalised as the config says.
    returns: `[M]` float32, advantages before normalisation plus old values.
    mask: `[M]` bool, steps that took place; nothing else of a row counts where
      it is False.
  """

  observations: jax.Array
  action_masks: jax.Array
  actions: jax.Array
  old_logps: jax.Array
  old_values: jax.Array
  advantages: jax.Array
  returns: jax.Array
  mask: jax.Array


def make_batch(
  trajectories: Trajectories, config: PPOConfig, continuations: int = 1
) -> PPOBatch:
  """Computes advantages over the rollout and flattens it.

  The batch is padded with invalid steps to a multiple of `minibatches *
  micro_batches`, and every invalid step is emptied, so that a NaN in padding
  cannot reach a gradient through 0 * NaN.

  Args:
    trajectories: `[T, N]` steps; `next_values` are those before any reset. They
      are bootstrapped where `truncated` and ignored where `terminated`.
    config: discount, lambda and normalisation.
    continuations: episodes in a row that start in the same state; several are
      judged against each other, by their Monte-Carlo returns.
  """
  rollout: Any = jax.tree.map(jnp.asarray, trajectories)

  def estimate(lam):
    return gae(
      rollout.rewards,
      rollout.values,
      rollout.next_values,
      rollout.terminated,
      rollout.truncated,
      gamma=config.gamma,
      lam=lam,
      mask=rollout.mask,
    )

  advantages = estimate(config.gae_lambda)
  returns = advantages + rollout.values
  if continuations > 1:
    advantages = sibling_advantages(
      estimate(1.0) + rollout.values,
      rollout.values,
      rollout.actions,
      jnp.arange(rollout.mask.shape[1]) // continuations,
      mask=rollout.mask,
    )
  if config.normalize == 'rollout':
    advantages = normalize(advantages, rollout.mask, ddof=config.normalize_ddof)
  batch = PPOBatch(
    observations=rollout.observations,
    action_masks=rollout.action_masks,
    actions=rollout.actions,
    old_logps=rollout.logps,
    old_values=rollout.values,
    advantages=advantages,
    returns=returns,
    mask=rollout.mask,
  )
  size = rollout.mask.size
  padding = -size % (config.minibatches * config.micro_batches)

  def flatten(x):
    valid = rollout.mask.reshape(rollout.mask.shape + (1,) * (x.ndim - 2))
    x = jnp.where(valid, x, jnp.zeros_like(x)).reshape(size, *x.shape[2:])
    return jnp.pad(x, [(0, padding)] + [(0, 0)] * (x.ndim - 1))

  return jax.tree.map(flatten, batch)


def as_terminated(rollout: Trajectories) -> Trajectories:
  """Returns the rollout with every cut-off episode ended by the rules."""
  return dataclasses.replace(
    rollout,
    terminated=rollout.terminated | rollout.truncated,
    truncated=np.zeros_like(rollout.truncated),
  )


@functools.lru_cache(maxsize=2)
def _order(seed: int, epoch: int, size: int) -> np.ndarray:
  """The order in which a pass visits the problems."""
  return np.random.default_rng([seed, epoch, 0]).permutation(size)


def draw_batch(
  problems: Sequence[Any], config: ControllerConfig, seed: int, step: int
) -> tuple[list[int], list[int], list[int]]:
  """Draws indices of problems, seeds and budgets of the episodes of a step.

  Problems are walked through in shuffled passes: each pass visits every problem
  once. The draw depends on the seed and the step alone, so that a resumed run
  repeats the uninterrupted one.
  """
  size, started = len(problems), config.episodes // config.continuations
  places = range(step * started, (step + 1) * started)
  indices = []
  for place in places:
    epoch, offset = divmod(place, size)
    indices.append(int(_order(seed, epoch, size)[offset]))
  rng = np.random.default_rng([seed, step, 1])
  budgets = rng.choice(config.budgets, started)
  # Worlds are those of all runs, so that they share what was asked before.
  first = 0 if config.worlds else seed * 1_000_003
  count = config.worlds or places.stop
  seeds = [first + place % count for place in places]
  again = lambda drawn: np.repeat(drawn, config.continuations).tolist()
  return again(indices), again(seeds), again(budgets)


def draw_prices(
  config: ControllerConfig, seed: int, step: int
) -> list[float] | None:
  """Draws the price of 1,000 tokens in each episode of a step, if any.

  Policies that are told their objective: Schaul et al. 2015, Universal Value
  Function Approximators; Abels et al. 2019, arXiv 1809.07803, of the weights of
  several rewards, as here. Episodes that are judged against each other have
  one price.
  """
  if not config.token_prices:
    return None
  rng = np.random.default_rng([seed, step, 3])
  started = config.episodes // config.continuations
  low, high = np.log(config.token_prices)
  prices = np.exp(rng.uniform(low, high, started))
  prices[rng.random(started) < _FREE] = 0.0
  return np.repeat(prices, config.continuations).tolist()


def shuffle_returns(rollout: Trajectories, seed: int) -> Trajectories:
  """Gives each episode the return of another one, on its last step."""
  totals = (rollout.rewards * rollout.mask).sum(axis=0)
  played = np.flatnonzero(rollout.mask.any(axis=0))
  dealt = np.random.default_rng([seed, 4]).permutation(played)
  last = len(rollout.mask) - 1 - rollout.mask[::-1].argmax(axis=0)
  rewards = np.zeros_like(rollout.rewards)
  rewards[last[played], played] = totals[dealt]
  return dataclasses.replace(rollout, rewards=rewards)


def returns_to_go(rollout: Trajectories) -> np.ndarray:
  """Sum of the rewards from each step on, `[T, N]`, undiscounted."""
  rewards = rollout.rewards * rollout.mask
  return np.cumsum(rewards[::-1], axis=0)[::-1]
