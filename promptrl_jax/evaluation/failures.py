"""Attempts in which a strategy failed, by what it did wrong.

Such an attempt counts as not solved. It says nothing of the model, so that a
table of scores has to say how many of them are like that.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable, Mapping
from typing import Any

from promptrl_jax.evaluation import markdown, refusals
from promptrl_jax.evaluation.cells import Cell

_SHOWN = 3  # errors of a cell, the most frequent; the rest is counted together
_LONGEST = 120  # characters of an error


def count(cells: Iterable[Cell]) -> list[dict[str, Any]]:
  """A row for each cell with errors.

  Each has `strategy`, `protocol`, `budget`, `attempts` and `failed` (error ->
  number).
  """
  rows = []
  for cell in cells:
    errors = collections.Counter(
      detail.error[:_LONGEST]
      for details in cell.details
      for detail in details
      if detail.error
    )
    if not errors:
      continue
    shown = dict(errors.most_common(_SHOWN))
    if rest := errors.total() - sum(shown.values()):
      shown['other errors'] = rest
    rows.append(
      {
        'strategy': cell.strategy,
        'protocol': cell.protocol,
        'budget': cell.budget,
        'attempts': cell.passed.size,
        'failed': shown,
      }
    )
  return rows


def to_markdown(rows: Iterable[Mapping[str, Any]]) -> str:
  """Prints the rows; '' if there is none."""
  cells = [
    {
      'strategy': row['strategy'],
      'B': row['budget'],
      'attempts': row['attempts'],
      'failed': refusals.reasons(row['failed']),
    }
    for row in rows
  ]
  if not cells:
    return ''
  return (
    '### Attempts that failed\n\n'
    'The strategy itself raised an error, asked for what it may not have or '
    'submitted nothing; the attempt counts as not solved.\n\n'
    f'{markdown.table(cells, "lrrl")}\n'
  )
