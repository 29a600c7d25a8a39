"""All strategies on the same problems, under the same protocols and budgets.

One call plays the whole line-up and leaves one trace file with every step of
every strategy. What is learned and what is fixed differ only in the policy.
"""

from __future__ import annotations

import collections
import dataclasses
import json
import pathlib
from collections.abc import Callable, Iterable, Mapping, Sequence

from promptrl_jax.envs.editing.env import VectorPromptEdit
from promptrl_jax.envs.editing.rollout import Policy
from promptrl_jax.evaluation import protocol as protocol_lib
from promptrl_jax.evaluation.cells import Cell
from promptrl_jax.execution import ExecutionPool
from promptrl_jax.strategies import policies
from promptrl_jax.types import Task

# Resampling until the visible tests pass is best-of-B.
_LABELS = {'keep': 'direct', 'resample': 'best_of_b'}
_NO_STRATEGY = ('submit', 'reset_prompt')


@dataclasses.dataclass(frozen=True)
class Entrant:
  """One strategy of the line-up.

  Attributes:
    make: seed -> policy.
    fixed: always the same action, so that it may become `best_fixed`.
    single: one greedy call, whatever the budget, and no use for seeds.
    optimisation_calls: calls paid once, before the first test problem.
  """

  make: Callable[[int], Policy]
  fixed: bool = False
  single: bool = False
  optimisation_calls: float = 0.0


@dataclasses.dataclass(frozen=True)
class Plan:
  """One column of a table: the same problems, protocol and budget for all."""

  protocol: str
  budget: int
  tasks: Sequence[Task]
  seeds: Sequence[int]


def rivals(actions: Sequence[str]) -> dict[str, Entrant]:
  """The strategies that learn nothing: each action alone, and random ones."""
  entrants = {
    _LABELS.get(action, action): Entrant(
      lambda seed, action=action: policies.fixed(action, actions),
      fixed=True,
      single=action == 'keep',
    )
    for action in actions
    if action not in _NO_STRATEGY
  }
  return entrants | {'random': Entrant(policies.uniform)}


def play(
  entrants: Mapping[str, Entrant],
  plans: Sequence[Plan],
  env: VectorPromptEdit,
  pool: ExecutionPool,
  trace_path: pathlib.Path,
  progress: Callable[[list], Iterable] = iter,
) -> dict[str, list[Cell]]:
  """Plays every entrant under every plan.

  Args:
    entrants: the strategies by name.
    plans: what they play.
    env: the environment; its backends should be cached.
    pool: scores the submissions.
    trace_path: written whole, one JSON object per step.
    progress: wraps the list of (plan, name) for a progress bar.

  Returns:
    Cells by protocol.
  """
  cells = collections.defaultdict(list)
  temporary = trace_path.with_name(f'.{trace_path.name}.tmp')
  with open(temporary, 'w', encoding='utf-8') as trace:
    for plan, name in progress([(p, n) for p in plans for n in entrants]):
      entrant = entrants[name]
      runs = [
        _run(entrant, plan, plan.tasks, seed, env, pool)
        for seed in (plan.seeds[:1] if entrant.single else plan.seeds)
      ]
      for row in (row for run in runs for row in run.trace):
        label = {'strategy': name, 'protocol': plan.protocol}
        trace.write(json.dumps({**label, **row, 'budget': plan.budget}) + '\n')
      cells[plan.protocol].append(
        protocol_lib.to_cell(
          name, plan.budget, plan.protocol, plan.tasks, runs,
          entrant.optimisation_calls,
        )
      )  # fmt: skip
  temporary.replace(trace_path)
  return cells


def best_fixed(
  entrants: Mapping[str, Entrant],
  plan: Plan,
  validation: Sequence[Task],
  cells: Sequence[Cell],
  env: VectorPromptEdit,
  pool: ExecutionPool,
) -> Cell:
  """The cell of the fixed action that is best on validation, renamed."""
  scores = {
    name: _run(
      entrant, plan, validation, plan.seeds[0], env, pool
    ).passed.mean()
    for name, entrant in entrants.items()
    if entrant.fixed
  }
  best = max(scores, key=lambda name: scores[name])
  chosen = next(
    c for c in cells if (c.strategy, c.budget) == (best, plan.budget)
  )
  return dataclasses.replace(chosen, strategy='best_fixed')


def _run(entrant, plan, tasks, seed, env, pool) -> protocol_lib.Run:
  return protocol_lib.run(
    env, entrant.make(seed), tasks, pool,
    protocol=plan.protocol,
    budget=1 if entrant.single else plan.budget,
    seed=seed,
  )  # fmt: skip
