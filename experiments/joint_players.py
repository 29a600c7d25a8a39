"""What `experiments.joint` plays: a policy and the rewriter that it asks.

No flags here.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import tqdm

from promptrl_jax.envs.editing.env import EnvConfig, VectorPromptEdit
from promptrl_jax.envs.editing.rollout import Policy
from promptrl_jax.evaluation import protocol as protocol_lib
from promptrl_jax.evaluation.cells import Cell
from promptrl_jax.execution.memo import MemoPool
from promptrl_jax.llm.backend import Backend
from promptrl_jax.llm.cache import CachedBackend
from promptrl_jax.llm.jax_lm import JaxLM
from promptrl_jax.strategies import policies
from promptrl_jax.training import joint
from promptrl_jax.training.controller.learner import ControllerLearner
from promptrl_jax.training.rewriter.learner import RewriterLearner
from promptrl_jax.types import Task

# Strategies that learn nothing, and the action that each of them repeats.
RIVALS = {'direct': 'keep', 'best_of_b': 'resample', 'start': 'semantic'}


@dataclasses.dataclass(frozen=True)
class Strategy:
  """How a problem is played.

  Attributes:
    policy: chooses edits.
    params: of the rewriter, as `JaxLM.replace_params` takes them.
    single: one call, whatever the budget.
  """

  policy: Policy
  params: Any
  single: bool = False


def of_state(
  arm: joint.JointConfig,
  control: ControllerLearner,
  learner: RewriterLearner,
  actions: Sequence[str],
  seed: int,
  state: joint.JointState,
) -> Strategy:
  """What an arm has learned; without a controller, always `semantic`."""
  policy = policies.fixed('semantic', actions)
  if arm.controller:
    policy = policies.controller(
      control.act_greedy, state.controller.params, seed
    )
  return Strategy(policy, learner.decode_params(state.rewriter))


def rivals(
  actions: Sequence[str], learner: RewriterLearner
) -> dict[str, Strategy]:
  """Those of `RIVALS` that the actions allow, with the untrained rewriter."""
  params = learner.decode_params(learner.initial)
  return {
    name: Strategy(policies.fixed(action, actions), params, action == 'keep')
    for name, action in RIVALS.items()
    if action in actions
  }


class Player:
  """Plays strategies, with one compiled rewriter for all of them."""

  def __init__(
    self,
    coder: Backend,
    rewriter: JaxLM,
    pool: MemoPool,
    config: EnvConfig,
    protocol: str,
  ):
    self._coder = coder
    self.rewriter = rewriter
    self._pool = pool
    self._config = config
    self._protocol = protocol

  def episodes(self) -> VectorPromptEdit:
    """The environment of training: the rewriter answers as it is by then."""
    return VectorPromptEdit(
      self._coder, self.rewriter, self._pool, self._config
    )

  def play(
    self,
    strategy: Strategy,
    tasks: Sequence[Task],
    budgets: Sequence[int],
    seed: int,
  ) -> list[protocol_lib.Run]:
    """One run per budget; what the rewriter answers is asked once for all."""
    self.rewriter.replace_params(strategy.params)
    episodes = VectorPromptEdit(
      self._coder, CachedBackend(self.rewriter), self._pool, self._config
    )
    return [
      protocol_lib.run(
        episodes,
        strategy.policy,
        tasks,
        self._pool,
        protocol=self._protocol,
        budget=1 if strategy.single else budget,
        seed=seed,
      )
      for budget in budgets
    ]

  def compare(
    self,
    entrants: Mapping[str, Sequence[Strategy]],
    tasks: Sequence[Task],
    budgets: Sequence[int],
    seeds: Sequence[int],
    trace_path: pathlib.Path,
    training_calls: Mapping[str, float],
  ) -> list[Cell]:
    """All strategies on the same tasks.

    Args:
      entrants: by name, one strategy per seed.
      tasks: of the test split.
      budgets: model calls per problem.
      seeds: of the runs.
      trace_path: written whole, one JSON object per step.
      training_calls: paid once, by name; 0 for a name that is not there.
    """
    cells = []
    temporary = trace_path.with_name(f'.{trace_path.name}.tmp')
    with open(temporary, 'w', encoding='utf-8') as trace:
      for name in tqdm.tqdm(entrants, desc='evaluate', unit='strategy'):
        by_seed = [
          self.play(strategy, tasks, budgets, seed)
          for strategy, seed in zip(entrants[name], seeds, strict=True)
        ]
        for place, budget in enumerate(budgets):
          runs = [played[place] for played in by_seed]
          label = {'strategy': name, 'protocol': self._protocol}
          for row in (row for run in runs for row in run.trace):
            line = json.dumps({**label, **row, 'budget': budget})
            trace.write(line + '\n')
          cells.append(
            protocol_lib.to_cell(
              name,
              budget,
              self._protocol,
              tasks,
              runs,
              training_calls.get(name, 0.0),
            )
          )
    temporary.replace(trace_path)
    return cells
