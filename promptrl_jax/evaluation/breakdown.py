"""Which problems a strategy solves: by kind of problem, and alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from promptrl_jax.evaluation.cells import Cell, check_same_tasks


def by_group(
  cells: Sequence[Cell], groups: Mapping[str, str]
) -> dict[str, Any]:
  """Returns the share of each group of problems that each cell solves.

  Args:
    cells: of one protocol, on the same problems.
    groups: task id -> name of its group. Problems without a name are left out.

  Returns:
    A dict of `groups`, a list of names with numbers of problems, the largest
    group first, and `cells`, a list of strategy, budget and `rates`, one share
    for each group. Both are empty if no problem has a name.

  Raises:
    ValueError: cells hold different problems.
  """
  places: dict[str, list[int]] = {}
  for cell in cells:
    check_same_tasks(cells[0], cell)
  for place, task in enumerate(cells[0].task_ids if cells else ()):
    if name := groups.get(task, ''):
      places.setdefault(name, []).append(place)
  names = sorted(places, key=lambda name: (-len(places[name]), name))
  return {
    'groups': [{'name': n, 'problems': len(places[n])} for n in names],
    'cells': [
      {
        'strategy': cell.strategy,
        'budget': cell.budget,
        'rates': [float(cell.passed[:, places[n]].mean()) for n in names],
      }
      for cell in cells
      if names
    ],
  }


def solved_alone(cells: Sequence[Cell]) -> list[dict[str, Any]]:
  """Returns the problems that one strategy of a budget solves alone.

  It solves such a problem in at least half of its seeds, and no other strategy
  does in any seed. Strategies with equal outcomes throughout, such as one under
  two names, count as one.

  Args:
    cells: of one protocol, on the same problems.

  Returns:
    Rows of `budget`, `strategies` (the names, one as a rule) and `problems`,
    the most problems first; strategies without such a problem have none.

  Raises:
    ValueError: cells hold different problems.
  """
  rows = []
  for budget in sorted({cell.budget for cell in cells}):
    names: dict[bytes, list[str]] = {}
    passed: dict[bytes, np.ndarray] = {}
    for cell in (cell for cell in cells if cell.budget == budget):
      check_same_tasks(cells[0], cell)
      # A deterministic strategy may have one seed where its double has more.
      key = np.unique(cell.passed, axis=0).tobytes()
      names.setdefault(key, []).append(cell.strategy)
      passed[key] = cell.passed
    ever = sum(array.any(axis=0).astype(int) for array in passed.values())
    for key, array in passed.items():
      alone = (array.mean(axis=0) >= 0.5) & (ever == 1)
      if alone.any():
        rows.append(
          {
            'budget': budget,
            'strategies': names[key],
            'problems': [cells[0].task_ids[i] for i in np.flatnonzero(alone)],
          }
        )
  return sorted(rows, key=lambda r: (r['budget'], -len(r['problems'])))
