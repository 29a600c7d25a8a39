"""Training of the contextual bandit, on the same problems as the controller."""

from __future__ import annotations

from collections.abc import Sequence

import jax

from promptrl_jax.envs.editing import rollout
from promptrl_jax.envs.editing.env import EditingEnv
from promptrl_jax.rl import bandits
from promptrl_jax.strategies import policies
from promptrl_jax.training.controller.config import (
  BanditConfig,
  ControllerConfig,
)
from promptrl_jax.training.controller.rollout import draw_batch
from promptrl_jax.types import Problem


def train(
  env: EditingEnv,
  problems: Sequence[Problem],
  controller: ControllerConfig,
  config: BanditConfig,
  seed: int,
) -> tuple[bandits.LinearBandit, int]:
  """Plays batches of episodes and learns from each.

  The number and the budgets of the episodes of a batch are those of the
  controller. Returns the bandit's statistics and the number of model calls.
  """
  statistics = bandits.initial(
    len(env.config.actions), env.config.observation_size
  )
  update_fn = jax.jit(bandits.update)
  calls = 0
  for step in range(config.iterations):
    indices, seeds, budgets = draw_batch(problems, controller, seed, step)
    played = rollout.collect(
      env,
      policies.bandit(statistics, config.exploration),
      [problems[i] for i in indices],
      seeds,
      budgets,
      [(i, len(problems)) for i in indices],
    )
    calls += sum(e.calls for e in env.episodes)
    size = played.observations.shape[-1]
    statistics = update_fn(
      statistics,
      played.observations.reshape(-1, size),
      played.actions.reshape(-1),
      played.rewards.reshape(-1),
      played.mask.reshape(-1),
    )
  return statistics, calls
