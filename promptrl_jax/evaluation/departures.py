"""Which decisions of a policy depart from a list of operators, and their gain.

With equal seeds both play the same episode up to the first operator in which
they differ: draws depend on the seed, the problem and the calls made. What the
two solve differently is therefore due to that decision and those after it.
"""

from __future__ import annotations

import collections
import itertools
from collections.abc import Sequence
from typing import Any

from promptrl_jax.evaluation import markdown
from promptrl_jax.evaluation.cells import Cell, check_same_tasks

END = '(ends)'


def measure(mine: Cell, other: Cell) -> list[dict[str, Any]]:
  """Returns a row per kind of first difference, the most frequent one first.

  Args:
    mine: the policy's results, with details.
    other: those of the list, at the same budget with the same seeds.

  Returns:
    Rows of `step` (from 1), `other` and `mine` (the operators), `episodes`, and
    the shares of them that are solved, `other_passed` and `mine_passed`. The
    row without a difference has step 0.

  Raises:
    ValueError: the cells hold different problems, seeds or budgets, or no
      details.
  """
  check_same_tasks(mine, other)
  if mine.budget != other.budget or mine.passed.shape != other.passed.shape:
    raise ValueError(
      f'{mine.strategy} at B={mine.budget} with {mine.passed.shape[0]} seeds '
      f'and {other.strategy} at B={other.budget} with '
      f'{other.passed.shape[0]}: expected equal budgets and seeds'
    )
  if not (mine.details and other.details):
    raise ValueError('cells without details: nothing says what was done')
  counts: dict[tuple[int, str, str], list[int]] = collections.defaultdict(
    lambda: [0, 0, 0]
  )
  for seed, (own, theirs) in enumerate(
    zip(mine.details, other.details, strict=True)
  ):
    for problem, pair in enumerate(zip(own, theirs, strict=True)):
      key = _first_difference(*(detail.actions.split() for detail in pair))
      row = counts[key]
      row[0] += 1
      row[1] += int(other.passed[seed, problem])
      row[2] += int(mine.passed[seed, problem])
  return [
    {
      'step': step,
      'other': theirs,
      'mine': own,
      'episodes': total,
      'other_passed': solved[0] / total,
      'mine_passed': solved[1] / total,
    }
    for (step, own, theirs), (total, *solved) in sorted(
      counts.items(), key=lambda item: (-item[1][0], item[0])
    )
  ]


def _first_difference(
  mine: Sequence[str], other: Sequence[str]
) -> tuple[int, str, str]:
  """Step, operator of the policy and of the list; (0, '', '') without one."""
  for step, (own, theirs) in enumerate(
    itertools.zip_longest(mine, other, fillvalue=END), start=1
  ):
    if own != theirs:
      return step, own, theirs
  return 0, '', ''


def _gained(row: dict[str, Any]) -> float:
  return (row['mine_passed'] - row['other_passed']) * row['episodes']


def to_markdown(
  rows: Sequence[dict[str, Any]], mine: Cell, other: Cell, most: int = 12
) -> str:
  """Prints the most frequent rows; a gain is in points of all episodes."""
  episodes = sum(row['episodes'] for row in rows)
  cells = [
    {
      'step': row['step'] or '',
      other.strategy: row['other'] or 'the same',
      mine.strategy: row['mine'] or 'the same',
      'episodes': row['episodes'],
      f'{other.strategy} solves': markdown.points(row['other_passed']),
      f'{mine.strategy} solves': markdown.points(row['mine_passed']),
      'gain': f'{100 * _gained(row) / episodes:+.2f}',
    }
    for row in rows[:most]
  ]
  return (
    f'### Where {mine.strategy} departs from {other.strategy}, B = '
    f'{mine.budget}\n\n'
    'Both play the same episode up to the first operator that differs; what '
    'follows is due to that decision and the later ones. Gain: points of '
    f'pass@1 over all {episodes} episodes.\n\n'
    f'{markdown.table(cells, "rllr")}\n'
  )
