"""Which operator solves what one greedy call did not.

Each operator is applied once, after the first program failed its visible tests:

  P(solved next | kind, operator) = solved / failed

by the kind of problem and by the kind of failure, which a solver sees. If one
operator is best at every kind, a fixed list serves all of them, and there is
nothing to learn.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from promptrl_jax.envs.editing.config import EditingConfig
from promptrl_jax.envs.editing.rollout import Decision, Policy
from promptrl_jax.evaluation import choosing, markdown, open_loop_search
from promptrl_jax.evaluation.open_loop import strategy
from promptrl_jax.evaluation.open_loop_search import Validation
from promptrl_jax.evaluation.play import Entrant, Game, LineUp
from promptrl_jax.llm.ask import AskConfig, Tools
from promptrl_jax.operators import FALLBACK, OPERATORS
from promptrl_jax.strategies import base, policies
from promptrl_jax.types import Problem, Task


def measure(
  line_up: LineUp,
  tasks: Sequence[Task],
  editing: EditingConfig,
  *,
  protocol: str,
  seeds: Sequence[int],
  ask: AskConfig | None = None,
) -> dict[str, Any]:
  """Returns counts by kind and by operator.

  `ask` says how programs are asked for; None: as the line-up does.

  Returns:
    `direct`: share of tasks that the greedy call solves; `agreement`: share of
    these among the programs that pass the visible tests; `kinds`: for each kind
    its tasks, its failures (programs that fail the visible tests), and for each
    operator `solved`, the share of failures that it solves. Kinds are `all`,
    the `register` of a task, and what became of the first program; `choosing`:
    what it is worth to choose an operator of one call by what is known of the
    failure, see `choosing.worth`; None with too few failures or seeds.
  """
  names = [
    name
    for name in editing.actions
    if OPERATORS[name].calls and name not in ('reset_prompt', 'undo')
  ]

  def game(operators: tuple[str, ...], seed: int) -> Game:
    return Game(
      Entrant.of(strategy(operators, editing), ask=ask),
      tasks,
      protocol,
      sum(OPERATORS[name].calls for name in operators),
      seed,
    )

  (first,) = line_up.run_all([game((FALLBACK,), seeds[0])])
  failed = np.array([not row['visible_passed'] for row in first.trace])
  mended = iter(
    line_up.run_all(
      [game((FALLBACK, name), seed) for name in names for seed in seeds]
    )
  )
  solved = {
    name: np.stack([next(mended).passed for _ in seeds]) for name in names
  }
  kinds = {'all': np.ones(len(tasks), bool)}
  statuses = np.array([row['status'] for row in first.trace])
  registers = np.array([task.register for task in tasks])
  worth = None
  if failed.sum() >= choosing.FEWEST and len(seeds) > 1:
    watching = _Watching(policies.fixed(FALLBACK, editing.actions))
    watched = base.OverOperators(watching, editing)
    line_up.run_all(
      [Game(Entrant.of(watched, ask=ask), tasks, protocol, 2, seeds[0])]
    )
    worth = choosing.worth(
      np.stack(
        [solved[n][:, failed] for n in names if OPERATORS[n].calls == 1]
      ),
      list(statuses[failed]),
      watching.observations[failed],
    )
  for labels in (registers, statuses):
    if len(found := sorted(set(labels))) > 1:
      kinds |= {label: labels == label for label in found}
  return {
    'direct': float(first.passed.mean()),
    'agreement': _mean(first.passed[~failed]),
    'kinds': {
      kind: {
        'tasks': int(chosen.sum()),
        'direct': float(first.passed[chosen].mean()),
        'failures': int((chosen & failed).sum()),
        'solved': {
          name: _mean(rates[:, chosen & failed])
          for name, rates in solved.items()
        },
      }
      for kind, chosen in kinds.items()
    },
    'choosing': worth,
  }


class _Watching:
  """A policy that keeps what it saw after the first step.

  Attributes:
    observations: [tasks, O]; of tasks that were done by then, zeros.
  """

  def __init__(self, policy: Policy):
    self._policy = policy
    self.observations = np.zeros((0, 0))

  def __call__(
    self, observations: np.ndarray, masks: np.ndarray, step: int
  ) -> Decision:
    if step == 1:
      self.observations = observations.copy()
    return self._policy(observations, masks, step)


class KnowsKind:
  """Plays a list of its own for each kind of problem: an upper bound.

  No solver is told the kind. What it gains over the best single list is what
  telling the kinds apart could be worth to a policy: the value of perfect
  information about them.
  """

  def __init__(
    self,
    kinds: Mapping[str, str],
    lists: Mapping[str, base.Strategy],
  ):
    """Takes the kind of each task by id, and the strategy of each kind."""
    self._kinds, self._lists = kinds, lists

  def start(
    self, problems: Sequence[Problem], tools: Tools, *, budget: int, seed: int
  ) -> base.Plays:
    plays: dict[int, Any] = {}
    kinds = [self._kinds[problem.task_id] for problem in problems]
    for kind in sorted(set(kinds)):
      rows = [row for row, other in enumerate(kinds) if other == kind]
      started = self._lists[kind].start(
        [problems[row] for row in rows], tools, budget=budget, seed=seed
      )
      plays |= dict(zip(rows, started, strict=True))
    return [plays[row] for row in range(len(problems))]


def lists_by_kind(
  validation: Validation, budgets: Sequence[int]
) -> dict[str, dict[int, tuple[str, ...]]]:
  """Searches the best lists of each kind among its own tasks."""
  found = {}
  for kind in sorted({task.register for task in validation.tasks}):
    own = [task for task in validation.tasks if task.register == kind]
    beams = open_loop_search.search_lists(
      dataclasses.replace(validation, tasks=own), budgets
    )
    found[kind] = {b: beams[b][0][1] for b in budgets}
  return found


def as_one_kind(tasks: Sequence[Task]) -> list[Task]:
  """Returns the tasks as if they were of one kind."""
  return [dataclasses.replace(task, register='') for task in tasks]


def worth_of_kinds(
  line_up: LineUp,
  tasks: Sequence[Task],
  lists: Mapping[str, Mapping[str, Mapping[int, Sequence[str]]]],
  editing: EditingConfig,
  *,
  protocol: str,
  budgets: Sequence[int],
  seeds: Sequence[int],
) -> dict[str, dict[int, dict[str, float]]]:
  """Returns pass rate and calls by name of the lists, and by budget.

  `lists` are results of `lists_by_kind`; the kind of all tasks together is ''.
  """
  result: dict[str, dict[int, dict[str, float]]] = {}
  for name, by_kind in lists.items():
    of_task = {
      task.task_id: '' if set(by_kind) == {''} else task.register
      for task in tasks
    }
    played = KnowsKind(
      of_task,
      {
        kind: base.ByBudget(
          {b: strategy(names, editing) for b, names in best.items()}
        )
        for kind, best in by_kind.items()
      },
    )
    result[name] = {}
    for budget in budgets:
      entrant = Entrant.of(played)
      runs = line_up.run_all(
        [Game(entrant, tasks, protocol, budget, seed) for seed in seeds]
      )
      result[name][budget] = {
        'passed': float(np.mean([run.passed.mean() for run in runs])),
        'calls': float(np.mean([run.calls.mean() for run in runs])),
      }
  return result


def worth_to_markdown(
  figures: Mapping[str, Mapping[int, Mapping[str, float]]],
) -> str:
  """Prints the result of `worth_of_kinds`: percent, and calls per problem."""
  rows = []
  for name, by_budget in figures.items():
    row = {'': name}
    for budget, x in by_budget.items():
      row[f'B={budget}'] = f'{_percent(x["passed"])} ({x["calls"]:.2f})'
    rows.append(row)
  return f'{markdown.table(rows)}\n'


def _mean(values: np.ndarray) -> float | None:
  return float(values.mean()) if values.size else None


def to_markdown(split: str, figures: dict[str, Any]) -> str:
  """Prints the result of `measure` as a table, in percent."""
  rows = [
    {
      'kind': kind,
      'tasks': row['tasks'],
      'greedy': _percent(row['direct']),
      'failures': row['failures'],
    }
    | {name: _percent(share) for name, share in row['solved'].items()}
    for kind, row in figures['kinds'].items()
  ]
  lines = [
    f'### {split}: greedy {_percent(figures["direct"])} %, '
    f'P(hidden | visible) {_percent(figures["agreement"])} %',
    '',
    markdown.table(rows),
  ]
  if figures['choosing']:
    lines += ['', choosing.to_markdown(figures['choosing'])]
  return '\n'.join(lines)


def _percent(share: float | None) -> str:
  return '-' if share is None else markdown.points(share)
