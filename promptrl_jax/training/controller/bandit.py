"""Training of the contextual bandit, on the same problems as the controller."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import NamedTuple

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


class Run(NamedTuple):
  """A training so far: what it needs to go on.

  Attributes:
    statistics: of the bandit.
    steps: batches that were played.
    calls: model calls that they made.
  """

  statistics: bandits.LinearBandit
  steps: int = 0
  calls: int = 0


def start(env: EditingEnv) -> Run:
  """Returns a training before its first batch."""
  return Run(
    bandits.initial(len(env.config.actions), env.config.observation_size)
  )


def train(
  run: Run,
  env: EditingEnv,
  problems: Sequence[Problem],
  controller: ControllerConfig,
  config: BanditConfig,
  seed: int,
  *,
  calls: int,
  kind: Kind = Kind(),
  progress: Callable[[Run, float], None] = lambda run, solved: None,
) -> Run:
  """Plays batches of episodes and learns from each.

  Args:
    run: the training so far; one that goes on ends as if it had never stopped.
    env: where episodes are played.
    problems: training problems.
    controller: number and budgets of the episodes of a batch.
    config: settings of the bandit.
    seed: of the draws.
    calls: model calls after which no further batch is played.
    kind: what it learns, and how it explores.
    progress: told after each batch of the training so far, and of the share
      that the batch solved.
  """
  update_fn, posterior_fn = jax.jit(bandits.update), jax.jit(bandits.posterior)
  # It draws nothing, so that continuations would be the same episode.
  controller = dataclasses.replace(controller, continuations=1)
  while run.calls < calls:
    indices, seeds, budgets = draw_batch(problems, controller, seed, run.steps)
    played = rollout.collect(
      env,
      _exploring(posterior_fn(run.statistics), run.steps, config, kind, seed),
      [problems[i] for i in indices],
      seeds,
      budgets,
      [(i, len(problems)) for i in indices],
    )
    rewards = returns_to_go(played) if kind.monte_carlo else played.rewards
    size = played.observations.shape[-1]
    statistics = update_fn(
      run.statistics,
      played.observations.reshape(-1, size),
      played.actions.reshape(-1),
      rewards.reshape(-1),
      played.mask.reshape(-1),
    )
    spent = sum(episode.calls for episode in env.episodes)
    run = Run(statistics, run.steps + 1, run.calls + spent)
    solved = np.mean([episode.best_share == 1.0 for episode in env.episodes])
    progress(run, float(solved))
  return run


def _exploring(
  posterior: bandits.LinearPosterior,
  steps: int,
  config: BanditConfig,
  kind: Kind,
  seed: int,
) -> rollout.Policy:
  if kind.thompson:
    key = jax.random.fold_in(jax.random.key(seed), steps)
    return policies.thompson(posterior, config.scale, key)
  return policies.bandit(posterior, config.exploration)
