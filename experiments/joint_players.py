"""What `experiments.joint` plays: a policy and the rewriter that it asks.

No flags here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from promptrl_jax.envs.editing.config import EditingConfig
from promptrl_jax.envs.editing.env import EditingEnv
from promptrl_jax.evaluation.play import Entrant, LineUp
from promptrl_jax.llm.attempt import REWRITER
from promptrl_jax.llm.backend import Backend
from promptrl_jax.llm.cache import CachedBackend
from promptrl_jax.llm.jax_lm import JaxLM
from promptrl_jax.strategies import policies
from promptrl_jax.strategies.base import OverOperators, Strategy
from promptrl_jax.training import joint
from promptrl_jax.training.controller.learner import ControllerLearner
from promptrl_jax.training.rewriter.learner import RewriterLearner

# Strategies that learn nothing, and the operator that each of them repeats.
RIVALS = {'direct': 'keep', 'best_of_b': 'resample', 'start': 'semantic'}


@dataclasses.dataclass(frozen=True)
class Player:
  """A strategy and the parameters of the rewriter that it asks.

  Attributes:
    strategy: solves problems.
    params: of the rewriter, as `JaxLM.replace_params` takes them.
    single: one call, whatever the budget.
  """

  strategy: Strategy
  params: Any
  single: bool = False


@dataclasses.dataclass(frozen=True)
class Field:
  """What all arms of a run share.

  Attributes:
    line_up: plays strategies for validation and for the report.
    episodes: the environment of training; its rewriter answers as it is by
      then.
    rewriter: the compiled rewriter, whose parameters are replaced.
    config: settings of the episodes.
  """

  line_up: LineUp
  episodes: EditingEnv
  rewriter: JaxLM
  config: EditingConfig


def of_state(
  arm: joint.JointConfig,
  control: ControllerLearner,
  learner: RewriterLearner,
  config: EditingConfig,
  seed: int,
  state: joint.JointState,
) -> Player:
  """What an arm has learned; without a controller, always `semantic`."""
  policy = policies.fixed('semantic', config.actions)
  if arm.controller:
    policy = policies.controller(
      control.act_greedy, state.controller.params, seed
    )
  return Player(
    OverOperators(policy, config), learner.decode_params(state.rewriter)
  )


def rivals(
  config: EditingConfig, learner: RewriterLearner
) -> dict[str, Player]:
  """Those of `RIVALS` that the actions allow, with the untrained rewriter."""
  params = learner.decode_params(learner.initial)
  return {
    name: Player(
      OverOperators(policies.fixed(action, config.actions), config),
      params,
      action == 'keep',
    )
    for name, action in RIVALS.items()
    if action in config.actions
  }


def entrant(
  players: Mapping[int, Player],
  model: JaxLM,
  optimisation_calls: float = 0.0,
) -> Entrant:
  """Players by seed as one strategy of the line-up, with one compiled rewriter.

  Args:
    players: the player of each seed.
    model: the rewriter; it is given the parameters of the player whose turn it
      is.
    optimisation_calls: calls of the training.
  """
  caches: dict[int, CachedBackend] = {}

  def models(seed: int) -> dict[str, Backend]:
    model.replace_params(players[seed].params)
    # Answers of other parameters are not these ones.
    return {REWRITER: caches.setdefault(seed, CachedBackend(model))}

  return Entrant(
    lambda seed: players[seed].strategy,
    models,
    single=all(player.single for player in players.values()),
    optimisation_calls=optimisation_calls,
  )
