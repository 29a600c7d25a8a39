"""One budget for all problems against equal caps, at equal totals.

The best list with a cap of B calls per problem spends T calls on all problems
together. The allocation gets the same T, and gives them where the critic
expects most of them (`strategies.allocation`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from promptrl_jax.envs.editing.config import EditingConfig
from promptrl_jax.envs.editing.rollout import Policy
from promptrl_jax.evaluation import markdown, statistics
from promptrl_jax.evaluation.play import Entrant, LineUp
from promptrl_jax.evaluation.protocol import Run
from promptrl_jax.strategies.allocation import Allocation
from promptrl_jax.strategies.base import Strategy
from promptrl_jax.types import Task

# Values below which a problem is given up; validation chooses among them.
THRESHOLDS = (-1.0, 0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7)
Policies = Mapping[int, Policy]  # by seed


def _play(
  line_up: LineUp,
  strategy: Strategy,
  tasks: Sequence[Task],
  protocol: str,
  budget: int,
  seed: int,
) -> Run:
  return line_up.run(
    Entrant.of(strategy),
    tasks,
    protocol=protocol,
    budget=budget,
    seed=seed,
  )


def compare(
  line_up: LineUp,
  tasks: Sequence[Task],
  validation: Sequence[Task],
  policies: Policies,
  rival: Strategy,
  editing: EditingConfig,
  *,
  protocol: str,
  budgets: Sequence[int],
  resamples: int = statistics.RESAMPLES,
  thresholds: Sequence[float] = THRESHOLDS,
) -> list[dict[str, Any]]:
  """Returns a row per budget: both pass rates, their difference, the calls.

  Args:
    line_up: plays.
    tasks: what is reported.
    validation: chooses the threshold of each budget.
    policies: with their critics, one per seed.
    rival: plays with a cap of each budget.
    editing: of the policies; its budget is the most that one problem gets.
    protocol: which tests are visible.
    budgets: caps of the rival.
    resamples: of the bootstrap.
    thresholds: to choose from.
  """
  rows = []
  for budget in budgets:

    def share(
      part: Sequence[Task], total: int, threshold: float, seed: int, b=budget
    ) -> Run:
      shared = Allocation(
        policies[seed], editing, total=total, threshold=threshold
      )
      return _play(line_up, shared, part, protocol, b, seed)

    def spend(part: Sequence[Task], seed: int, b=budget) -> Run:
      return _play(line_up, rival, part, protocol, b, seed)

    first = min(policies)
    total = int(spend(validation, first).calls.sum())
    rates = {
      t: share(validation, total, t, first).passed.mean() for t in thresholds
    }
    chosen = max(rates, key=lambda t: rates[t])
    runs = []
    for seed in sorted(policies):
      run = spend(tasks, seed)
      runs.append((run, share(tasks, int(run.calls.sum()), chosen, seed)))
    capped, shared = (
      np.stack([run.passed.astype(float) for run in part])
      for part in zip(*runs, strict=True)
    )
    interval = statistics.bootstrap_difference(
      shared,
      capped,
      groups=[task.family for task in tasks],
      resamples=resamples,
      seed=0,
    )
    calls = np.mean([[r.calls.mean() for r in pair] for pair in runs], axis=0)
    rows.append(
      {
        'budget': budget,
        'threshold': chosen,
        'capped': float(capped.mean()),
        'shared': float(shared.mean()),
        'difference': float(shared.mean() - capped.mean()),
        'low': interval.low,
        'high': interval.high,
        'capped_calls': float(calls[0]),
        'shared_calls': float(calls[1]),
      }
    )
  return rows


def to_markdown(rows: Sequence[Mapping[str, Any]]) -> str:
  """Prints the result of `compare`."""
  cells = [
    {
      'B': row['budget'],
      'calls per problem': (
        f'{row["capped_calls"]:.2f} / {row["shared_calls"]:.2f}'
      ),
      'capped': markdown.points(row['capped']),
      'shared': markdown.points(row['shared']),
      'difference': markdown.interval(row, 'difference', '+'),
    }
    for row in rows
  ]
  return (
    '### One budget for all problems, against the best list with equal caps'
    f'\n\n{markdown.table(cells, "r")}\n'
  )
