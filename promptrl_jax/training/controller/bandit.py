"""Training of the contextual bandit, on the same problems as the controller."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import jax
import numpy as np

from promptrl_jax.envs.editing import rollout
from promptrl_jax.envs.editing.env import EditingEnv
from promptrl_jax.rl import bandits
from promptrl_jax.strategies import policies
from promptrl_jax.training.controller.config import (
  BanditConfig,
  ControllerConfig,
)
from promptrl_jax.training.controller.rollout import (
  draw_batch,
  returns_to_go,
)
from promptrl_jax.types import Problem


@dataclasses.dataclass(frozen=True)
class Kind:
  """What a bandit learns, and how it explores.

  Attributes:
    monte_carlo: learns what an episode earns from a step on, not that step's
      reward alone: then an edit is worth what later steps make of it.
    thompson: draws parameters from their posteriors instead of adding a
      confidence bound.
  """

  monte_carlo: bool = False
  thompson: bool = False


def train(
  env: EditingEnv,
  problems: Sequence[Problem],
  controller: ControllerConfig,
  config: BanditConfig,
  seed: int,
  *,
  calls: int,
  kind: Kind = Kind(),
  progress: Callable[[int, float], None] = lambda calls, solved: None,
) -> tuple[bandits.LinearBandit, int]:
  """Plays batches of episodes and learns from each.

  Args:
    env: where episodes are played.
    problems: training problems.
    controller: number and budgets of the episodes of a batch.
    config: settings of the bandit.
    seed: of the draws.
    calls: model calls after which no further batch is played.
    kind: what it learns, and how it explores.
    progress: told after each batch of its calls and the share it solved.

  Returns:
    The bandit's statistics and the number of model calls.
  """
  statistics = bandits.initial(
    len(env.config.actions), env.config.observation_size
  )
  update_fn = jax.jit(bandits.update)
  # It draws nothing, so that continuations would be the same episode.
  controller = dataclasses.replace(controller, continuations=1)
  paid = step = 0
  while paid < calls:
    indices, seeds, budgets = draw_batch(problems, controller, seed, step)
    played = rollout.collect(
      env,
      _exploring(statistics, config, kind, seed, step),
      [problems[i] for i in indices],
      seeds,
      budgets,
      [(i, len(problems)) for i in indices],
    )
    rewards = returns_to_go(played) if kind.monte_carlo else played.rewards
    size = played.observations.shape[-1]
    statistics = update_fn(
      statistics,
      played.observations.reshape(-1, size),
      played.actions.reshape(-1),
      rewards.reshape(-1),
      played.mask.reshape(-1),
    )
    spent = sum(episode.calls for episode in env.episodes)
    paid, step = paid + spent, step + 1
    solved = np.mean([episode.best_share == 1.0 for episode in env.episodes])
    progress(spent, float(solved))
  return statistics, paid


def _exploring(
  statistics: bandits.LinearBandit,
  config: BanditConfig,
  kind: Kind,
  seed: int,
  step: int,
) -> rollout.Policy:
  if kind.thompson:
    key = jax.random.fold_in(jax.random.key(seed), step)
    return policies.thompson(statistics, config.scale, key)
  return policies.bandit(statistics, config.exploration)
