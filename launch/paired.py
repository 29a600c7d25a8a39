"""How far the cells of a sweep are from the first one, paired by problem."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from promptrl_jax.evaluation import cells as cells_lib
from promptrl_jax.evaluation import markdown, statistics
from promptrl_jax.training import workdir as workdir_lib


@dataclasses.dataclass(frozen=True)
class Difference:
  """Pass rate of a cell less that of the first one, in -1..1.

  Attributes:
    mean: over problems and seeds.
    low, high: 95 % interval, paired by problem.
    p: of the sign-flip test over problems; `holm` adjusts it.
  """

  mean: float
  low: float
  high: float
  p: float

  def __str__(self) -> str:
    interval = markdown.interval(dataclasses.asdict(self), sign='+')
    return f'{interval}, p {self.p:.2g}'


def differences(
  of_first: Mapping[str, cells_lib.Cell], of_other: Mapping[str, cells_lib.Cell]
) -> dict[str, Difference]:
  """Compares what the subjects of two runs solved, problem by problem.

  Args:
    of_first, of_other: as `played` returns them. Where the problems or the
      number of seeds differ, there is nothing to compare.

  Returns:
    A difference for each protocol and budget, named as by `report.headline`.
  """
  by_budget = {}
  for name in (name for name in of_other if name in of_first):
    a, b = of_other[name], of_first[name]
    if a.task_ids != b.task_ids or a.passed.shape != b.passed.shape:
      continue
    pair = a.passed, b.passed
    groups = a.families or None
    interval = statistics.bootstrap_difference(*pair, groups=groups)
    by_budget[name] = Difference(
      float(a.passed.mean() - b.passed.mean()),
      interval.low,
      interval.high,
      statistics.permutation_test(*pair, groups=groups),
    )
  return by_budget


def holm(
  by_cell: Sequence[Mapping[str, Difference]],
) -> list[dict[str, Difference]]:
  """Adjusts p of all differences of a sweep for their number."""
  every = [d.p for of_cell in by_cell for d in of_cell.values()]
  adjusted = iter(statistics.holm(np.array(every)).tolist())
  return [
    {n: dataclasses.replace(d, p=next(adjusted)) for n, d in of_cell.items()}
    for of_cell in by_cell
  ]


def tables_of(results: Mapping[str, Any]) -> Mapping[str, Any]:
  """Returns the tables in a `results.json` by protocol; perhaps none."""
  if 'cells' in results:  # A job with a single protocol.
    return {results['protocol']: results}
  return results.get('tables', {})


def played(workdir: pathlib.Path) -> dict[str, cells_lib.Cell]:
  """Returns the cells of the subject of a run, by protocol and budget.

  None without `results.csv`.
  """
  path = workdir / 'results.csv'
  if not path.is_file():
    return {}
  tables = tables_of(workdir_lib.results(workdir))
  return {
    f'{cell.protocol} B={cell.budget}': cell
    for cell in cells_lib.read_csv(path)
    if cell.strategy == tables.get(cell.protocol, {}).get('subject')
  }
