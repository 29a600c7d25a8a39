"""The control of equal calls: sampling, as often as a strategy asked.

A strategy stops at a visible pass, on some problems early, on others late, so
that two of one budget use different numbers of calls. The control may make as
many calls on each problem as the strategy made there in the same run. It
submits the first program that passes the visible tests, and stops there, since
asking on would not change what it submits: it may use fewer calls than it is
allowed, and both numbers are reported.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from promptrl_jax.evaluation import markdown, statistics
from promptrl_jax.evaluation.cells import Cell
from promptrl_jax.evaluation.play import Entrant, Game, LineUp, Plan
from promptrl_jax.strategies.base import TextStrategy
from promptrl_jax.strategies.fewshot import best_of_n

_PLAYED = ('passed', 'soft', 'calls', 'attempts')
_PLAYED += ('prompt_tokens', 'completion_tokens')


def label(strategy: str) -> str:
  """Name of the control of a strategy."""
  return f'samples_at_calls_of_{strategy}'


def measure(line_up: LineUp, plan: Plan, cell: Cell) -> Cell:
  """Plays the control of a strategy.

  Args:
    line_up: plays.
    plan: the problems and seeds of the strategy.
    cell: of the strategy.

  Returns:
    A cell with what the control used itself, and without details.

  Raises:
    SystemFailure: the pool failed where a result was due.
    BackendError: a model cannot be reached.
  """
  sampler = Entrant.of(TextStrategy(best_of_n))
  games, places = [], []
  # A strategy without use for seeds has one run.
  for run, (seed, calls) in enumerate(
    zip(plan.seeds, cell.calls, strict=False)
  ):
    for budget in np.unique(calls[calls > 0]).tolist():
      chosen = np.flatnonzero(calls == budget)
      tasks = [plan.tasks[i] for i in chosen.tolist()]
      games.append(Game(sampler, tasks, plan.protocol, budget, seed))
      places.append((run, chosen))
  arrays = {name: np.zeros_like(getattr(cell, name)) for name in _PLAYED}
  for place, played in zip(places, line_up.run_all(games), strict=True):
    for name, array in arrays.items():
      array[place] = getattr(played, name)
  return dataclasses.replace(
    cell,
    strategy=label(cell.strategy),
    **arrays,
    optimisation_calls=0.0,
    details=(),
  )


def compare(
  controls: Sequence[Cell],
  cells: Sequence[Cell],
  resamples: int = statistics.RESAMPLES,
) -> list[dict[str, Any]]:
  """Compares a strategy with its control.

  Args:
    controls: cells of `measure`.
    cells: of the strategies, that of the controls among them.
    resamples: of the bootstrap.

  Returns:
    A row per control: `strategy`, `budget`, `calls` (of the strategy, which the
    control is allowed) and `control_calls` (which it used), both per problem,
    `subject` and `control` (shares that are solved) and `gain`, `low`, `high`:
    their difference with a 95 % interval over problems and seeds.
  """
  by_key = {(label(cell.strategy), cell.budget): cell for cell in cells}
  rows = []
  for control in controls:
    mine = by_key[control.strategy, control.budget]
    interval = statistics.bootstrap_difference(
      mine.passed,
      control.passed,
      groups=mine.families or None,
      resamples=resamples,
      seed=0,
    )
    rows.append(
      {
        'strategy': mine.strategy,
        'budget': mine.budget,
        'calls': float(mine.calls.mean()),
        'control_calls': float(control.calls.mean()),
        'subject': float(mine.passed.mean()),
        'control': float(control.passed.mean()),
        'gain': float(mine.passed.mean() - control.passed.mean()),
        'low': interval.low,
        'high': interval.high,
      }
    )
  return rows


def to_markdown(rows: Sequence[dict[str, Any]]) -> str:
  """Prints the result of `compare`; '' without rows."""
  if not rows:
    return ''
  subject = rows[0]['strategy']
  cells = [
    {
      'B': row['budget'],
      'calls': f'{row["calls"]:.2f}',
      'used by samples': f'{row["control_calls"]:.2f}',
      subject: markdown.points(row['subject']),
      'samples': markdown.points(row['control']),
      f'{subject} - samples': markdown.interval(row, 'gain', '+'),
    }
    for row in rows
  ]
  return (
    f'### Samples of one prompt at the calls that {subject} used\n\n'
    'On each problem of each run the coder may be asked as often as the '
    'strategy asked its models there. The first program is greedy, and the '
    'first that passes the visible tests is submitted and ends the sampling, '
    'as more samples would not change what is submitted.\n\n'
    f'{markdown.table(cells, "r")}\n'
  )
