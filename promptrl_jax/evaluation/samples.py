"""pass@k: whether one of k independent samples of a program is right.

The k samples are alternatives that nobody chooses among, and the estimate holds
for samples that do not depend on one another (Chen et al. 2021, arXiv
2107.03374). A strategy that reads verdicts, or stops at one, makes none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from promptrl_jax.evaluation import markdown, statistics
from promptrl_jax.evaluation.cells import Cell
from promptrl_jax.types import Task

NAME = 'samples'
# A row of a trace with a program, and the share of hidden tests it passes.
Scored = tuple[Mapping[str, Any], float]


def pass_at_k(cell: Cell, k: int) -> np.ndarray:
  """pass@k of each problem, float [problems], of independent samples.

  Args:
    cell: of one call per problem, a seed for each sample.
    k: at most half as many samples as the cell has: beyond, the estimate is
      that of few draws.

  Raises:
    ValueError: the cell is that of a search, whose programs are no independent
      samples: later ones depend on the verdicts on those before; or it has
      fewer than 2 k samples.
  """
  if cell.budget > 1:
    raise ValueError(
      f'pass@k of {cell.strategy!r} at B={cell.budget}: the programs of a '
      'search depend on one another and stop at a visible pass; expected '
      'samples of one call each (B=1), or compare pass@1 by budget (solved@B)'
    )
  samples = len(cell.passed)
  if not 1 <= k <= samples // 2:
    raise ValueError(
      f'pass@{k} of {samples} samples: expected k in 1..{samples // 2}, half '
      f'of them; draw at least {2 * max(k, 1)} samples'
    )
  right = cell.passed.sum(axis=0)
  return np.array(
    [statistics.pass_at_k(samples, int(c), k) for c in right], np.float64
  )


def of_runs(
  runs: Sequence[Sequence[Scored]],
  tasks: Sequence[Task],
  protocol: str,
  budget: int,
) -> Cell | None:
  """The samples in runs that ask for `budget` programs whatever tests say.

  The first program of a run is left out: it is greedy, or drawn at a
  temperature of its own.

  Args:
    runs: the scored rows of each run, the steps of a problem in order.
    tasks: the problems.
    protocol: of the runs.
    budget: programs of each problem in a run, B.

  Returns:
    A cell of one call per problem with `runs * (B - 1)` seeds, one for each
    sample; None if there is none, or if they are all the same greedy program.
  """
  drawn = [row for rows in runs for row in _after_first(rows)]
  if not any(row['sent'][0]['temperature'] > 0 for _, row, _ in drawn):
    return None
  shape = len(runs) * (budget - 1), len(tasks)
  soft = np.zeros(shape)
  counts = {
    name: np.zeros(shape, np.int64)
    for name in ('calls', 'attempts', 'prompt_tokens', 'completion_tokens')
  }
  for number, rows in enumerate(runs):
    for place, row, score in _after_first(rows):
      index = number * (budget - 1) + place, row['row']
      soft[index] = score
      counts['calls'][index] = 1
      counts['attempts'][index] = bool(row['code'])
      for name in ('prompt_tokens', 'completion_tokens'):
        counts[name][index] = row['answers'][0][name]
  return Cell(
    strategy=NAME,
    budget=1,
    protocol=protocol,
    task_ids=tuple(task.task_id for task in tasks),
    passed=soft == 1.0,
    soft=soft,
    calls=counts['calls'],
    attempts=counts['attempts'],
    prompt_tokens=counts['prompt_tokens'],
    completion_tokens=counts['completion_tokens'],
    families=tuple(task.family for task in tasks),
  )


def _after_first(
  rows: Iterable[Scored],
) -> Iterator[tuple[int, Mapping[str, Any], float]]:
  """Yields all but the first row of each problem, numbered from 0."""
  seen: dict[int, int] = {}
  for row, score in rows:
    if not row['sent']:
      continue  # The prompt did not fit: nothing was drawn.
    place = seen.get(row['row'], -1)
    seen[row['row']] = place + 1
    if place >= 0:
      yield place, row, score


def table(
  cell: Cell, resamples: int = statistics.RESAMPLES
) -> list[dict[str, Any]]:
  """pass@k for k = 1, 2, 4, ... up to half of the samples of a cell.

  Returns:
    Rows of `k`, `mean`, `low` and `high` (95 % over problems, or families of
    them) and `samples`; none if there are fewer than two samples.
  """
  rows, k = [], 1
  while 2 * k <= len(cell.passed):
    values = pass_at_k(cell, k)
    interval = statistics.bootstrap_interval(
      values[None], groups=cell.families or None, resamples=resamples, seed=0
    )
    rows.append(
      {
        'k': k,
        'samples': len(cell.passed),
        'mean': float(values.mean()),
        **interval._asdict(),
      }
    )
    k *= 2
  return rows


def to_markdown(rows: Sequence[Mapping[str, Any]]) -> str:
  """Prints the result of `table`."""
  cells = {f'k={row["k"]}': markdown.interval(row) for row in rows}
  return (
    f'### pass@k of {rows[0]["samples"]} independent samples of the coder\n\n'
    'The share of problems for which one of k samples of the first prompt '
    'passes the hidden tests, unbiased; k is at most half of the samples. No '
    'strategy is among them: what searches is compared by pass@1 at its '
    'budget.\n\n'
    f'{markdown.table([cells], "r")}\n'
  )
