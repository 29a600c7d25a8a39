"""How many replies were refused or cut, by what was asked for.

trace: a row's requests, answers and `refused` ──> per strategy, budget and kind

A refused text is replaced by what it was made of and costs its call all the
same. A program is never refused: one that the limit of tokens cut off is run
and scored like any other, and is counted here.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from promptrl_jax.evaluation import markdown
from promptrl_jax.llm.attempt import CODER, REWRITER
from promptrl_jax.llm.replies import CUT

PROGRAM, REWRITE = 'program', 'rewrite'


class Replies:
  """Counts the replies of a trace.

  A kind of reply is `program`, `rewrite`, or the action of a row that asked for
  other words, such as `reflect`; what a request without room would have been
  answered counts as a reply.
  """

  def __init__(self, trace_rows: Iterable[Mapping[str, Any]] = ()):
    self._counts: dict[tuple, collections.Counter] = {}
    for row in trace_rows:
      self.add(row)

  def add(self, row: Mapping[str, Any]) -> None:
    """Counts the replies of a row."""
    for kind, refused in _replies(row):
      key = row['strategy'], row['protocol'], row['budget'], kind
      count = self._counts.setdefault(key, collections.Counter())
      count['replies'] += 1
      if refused:
        count['refused', refused] += 1

  def rows(self) -> list[dict[str, Any]]:
    """A row per strategy, protocol, budget and kind.

    Each has `replies` and `refused` (reason -> number).
    """
    return [
      {
        'strategy': strategy,
        'protocol': protocol,
        'budget': budget,
        'kind': kind,
        'replies': count['replies'],
        'refused': {
          key[1]: n for key, n in count.items() if isinstance(key, tuple)
        },
      }
      for (strategy, protocol, budget, kind), count in self._counts.items()
    ]


def _replies(row: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
  """What a row asked for in words or code, and why it was not taken whole."""
  refused = row.get('refused', '')
  if row['action'] == 'reflect' or 'operator' in row:
    yield row['action'], refused
    return
  roles = [request['role'] for request in row['sent']]
  if REWRITER in roles or refused:
    yield REWRITE, refused
  if row['code'] is not None and CODER in roles:
    ended = row['answers'][len(roles) - 1 - roles[::-1].index(CODER)]
    yield PROGRAM, CUT if ended['finish_reason'] == 'length' else ''


def to_markdown(rows: Iterable[Mapping[str, Any]]) -> str:
  """Prints the rows that have something to say; '' if none has."""
  shown = [row for row in rows if row['refused']]
  if not shown:
    return ''
  cells = [
    {
      'strategy': row['strategy'],
      'B': row['budget'],
      'asked for': row['kind'],
      'replies': row['replies'],
      'refused or cut': reasons(row['refused']),
    }
    for row in shown
  ]
  return (
    '### Replies that were refused or cut\n\n'
    'A text that is cut off by the limit of tokens, that nothing can be read '
    'from or that repeats its instruction is refused, and what it was to '
    'replace stands in its place. A program that was cut is run and scored all '
    'the same.\n\n'
    f'{markdown.table(cells, "lrlrl")}\n'
  )


def reasons(refused: Mapping[str, int]) -> str:
  """Prints a number and the reasons that it is the sum of, for a table."""
  if not refused:
    return '0'
  parts = '; '.join(
    f'{number} {reason}'
    for reason, number in sorted(refused.items(), key=lambda x: (-x[1], x[0]))
  )
  return f'{sum(refused.values())} ({parts})'
