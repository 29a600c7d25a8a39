"""What became of the programs of each strategy, by the class of their failure.

A program is judged by the visible tests here: that is what a strategy sees.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable, Mapping
from typing import Any

from promptrl_jax.evaluation import markdown

NO_FAILURE, NO_PROGRAM = 'no failure', 'no program'
_STATUSES = {'failed': 'wrong value', 'unknown': 'no visible test'}
_SHOWN = 4  # classes of a strategy, the most frequent; the rest are one


def failure(row: Mapping[str, Any]) -> str:
  """The class of what the program of a trace row did on the visible tests.

  An exception is called by its name, a failed assertion is a `wrong value`, and
  a reply without code is `no program`.
  """
  if row['visible_passed']:
    return NO_FAILURE
  if not row['code'].strip():
    return NO_PROGRAM
  status = row.get('status') or 'unknown'
  return row.get('error_type') or _STATUSES.get(status, status)


class Verdicts:
  """Counts the programs in the rows of a trace."""

  def __init__(self, trace_rows: Iterable[Mapping[str, Any]] = ()):
    self._counts: dict[tuple[str, str, int], collections.Counter] = {}
    for row in trace_rows:
      self.add(row)

  def add(self, row: Mapping[str, Any]) -> None:
    """Counts the program of a row, if it has one."""
    if row.get('code') is None:
      return
    key = row['strategy'], row['protocol'], row['budget']
    self._counts.setdefault(key, collections.Counter())[failure(row)] += 1

  def rows(self) -> list[dict[str, Any]]:
    """A row per strategy, protocol and budget.

    Each has `programs` and `verdicts` (class of failure -> number).
    """
    return [
      {
        'strategy': strategy,
        'protocol': protocol,
        'budget': budget,
        'programs': count.total(),
        'verdicts': dict(count.most_common()),
      }
      for (strategy, protocol, budget), count in self._counts.items()
    ]


def to_markdown(rows: Iterable[Mapping[str, Any]]) -> str:
  """Prints the row of each strategy at its largest budget; '' without any.

  Rows are those of one protocol.
  """
  largest = {}
  for row in sorted(rows, key=lambda row: row['budget']):
    largest[row['strategy']] = row
  if not largest:
    return ''
  cells = [
    {
      'strategy': row['strategy'],
      'B': row['budget'],
      'programs': row['programs'],
      'pass the visible tests': _share(row, [NO_FAILURE]),
      'fail by': _failures(row),
    }
    for row in largest.values()
  ]
  return (
    '### What became of the programs\n\n'
    'All programs that a strategy had written at its largest budget, by the '
    'visible tests, in % of them.\n\n'
    f'{markdown.table(cells, "lrrrl")}\n'
  )


def _failures(row: Mapping[str, Any]) -> str:
  names = [name for name in row['verdicts'] if name != NO_FAILURE]
  parts = [f'{name} {_share(row, [name])}' for name in names[:_SHOWN]]
  if rest := names[_SHOWN:]:
    parts.append(f'others {_share(row, rest)}')
  return ', '.join(parts)


def _share(row: Mapping[str, Any], names: Iterable[str]) -> str:
  number = sum(row['verdicts'].get(name, 0) for name in names)
  return markdown.points(number / row['programs'])
