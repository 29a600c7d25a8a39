"""What the operators of searches over words bring: candidates in numbers.

  trace: `generation` rows of EPiC ──> per strategy, budget and operator
  history of an instruction search ──> per operator

A strategy that evolves the words of each problem has a population for each
problem and seed, a search for one instruction has a single one, its pool. No
strategy has islands.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable, Mapping
from typing import Any

from promptrl_jax.evaluation.refusals import reasons

# What a candidate is that no operator has proposed.
_KEPT = ('original', 'survive', 'start', 'held out')
_UNSCORED = 'could not be scored'

_Table = tuple[str, str, int]  # strategy, protocol, budget


def of_trace(trace_rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
  """Counts the candidates in the `generation` rows of a trace.

  A candidate is distinct if its text was not in its population before, and
  improved if it is distinct and fitter than its parents.

  Args:
    trace_rows: the rows of an episode in their order.

  Returns:
    A row per strategy, protocol, budget and operator, with `populations`,
    `proposed`, `refused` (reason -> number), `distinct` and `improved`.
  """
  counts: dict[tuple[_Table, str], collections.Counter] = {}
  # By population, then by text.
  fitness: dict[tuple[_Table, int, int], dict[str, float]] = {}
  for row in trace_rows:
    if row['action'] != 'generation':
      continue
    table = row['strategy'], row['protocol'], row['budget']
    known = fitness.setdefault((table, row['seed'], row['row']), {})
    for one, own in zip(row['candidates'], row['fitness'], strict=True):
      if one['operator'] not in _KEPT:
        before = [known.get(parent, 0.0) for parent in one['parents']]
        count = counts.setdefault(
          (table, one['operator']), collections.Counter()
        )
        _add(
          count,
          refused=one['refused'],
          is_distinct=one['statement'] not in known,
          is_improved=own > max(before, default=0.0),
        )
      known[one['statement']] = own
  populations = collections.Counter(table for table, _, _ in fitness)
  return [
    _row(*table, operator, populations[table], count)
    for (table, operator), count in counts.items()
  ]


def of_search(
  strategy: str, protocol: str, history: Iterable[Mapping[str, Any]]
) -> list[dict[str, Any]]:
  """Counts the candidates of a search that was over before the first problem.

  A text that was there before is refused by the search. One is improved if its
  score exceeds that of its best parent on the examples that they were compared
  on; where no such comparison was made, none is.

  Args:
    strategy: its name in the table.
    protocol: which tests were visible.
    history: its `texts.pool.Step`s as plain data.

  Returns:
    Rows as those of `of_trace`, with None for a budget.
  """
  counts: dict[str, collections.Counter] = {}
  for step in history:
    if step['kind'] in _KEPT:
      continue
    refused = '' if step['text'] else step['why']
    after, before = step['after'], step['before']
    if not refused and after is None and step['candidate'] is None:
      refused = _UNSCORED
    _add(
      counts.setdefault(step['kind'], collections.Counter()),
      refused=refused,
      is_distinct=True,
      is_improved=bool(before) and after is not None and after > max(before),
    )
  return [
    _row(strategy, protocol, None, operator, 1, count)
    for operator, count in counts.items()
  ]


def _add(
  count: collections.Counter,
  *,
  refused: str,
  is_distinct: bool,
  is_improved: bool,
) -> None:
  """Counts one candidate; the reasons of refusals are keys of their own."""
  is_distinct &= not refused
  count['proposed'] += 1
  count['distinct'] += is_distinct
  count['improved'] += is_distinct and is_improved
  if refused:
    count['refused', refused] += 1


def _row(
  strategy: str,
  protocol: str,
  budget: int | None,
  operator: str,
  populations: int,
  count: collections.Counter,
) -> dict[str, Any]:
  refused = {key[1]: n for key, n in count.items() if isinstance(key, tuple)}
  return {
    'strategy': strategy,
    'protocol': protocol,
    'budget': budget,
    'operator': operator,
    'populations': populations,
    'proposed': count['proposed'],
    'refused': refused,
    'distinct': count['distinct'],
    'improved': count['improved'],
  }


def to_markdown(rows: Iterable[Mapping[str, Any]]) -> str:
  """Prints the rows of `of_trace` and `of_search`."""
  lines = [
    '### Candidates by operator',
    '',
    'Texts that the operators of searches over words proposed, in all '
    'populations together. Distinct: not in the population before. Improved: '
    'distinct, and better than every parent on what both were scored on.',
    '',
    '| strategy | B | operator | populations | proposed | refused | distinct '
    '| improved |',
    '|---|---:|---|---:|---:|---|---:|---:|',
  ]
  for row in rows:
    budget = 'search' if row['budget'] is None else row['budget']
    refused = reasons(row['refused'])
    lines.append(
      f'| {row["strategy"]} | {budget} | {row["operator"]} '
      f'| {row["populations"]} | {row["proposed"]} | {refused} '
      f'| {row["distinct"]} | {row["improved"]} |'
    )
  return '\n'.join([*lines, ''])
