"""What the operators of searches over words bring: candidates in numbers.

  trace: `generation` rows of EPiC ──> per strategy, budget and operator
                                   ──> per strategy, budget and island
  history of an instruction search ──> per operator, and of its pool

A strategy that evolves the words of each problem has a population for each
problem and seed, on one island or on several, a search for one instruction has
a single one, its pool.
"""

from __future__ import annotations

import collections
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from promptrl_jax.evaluation import markdown
from promptrl_jax.evaluation.refusals import reasons
from promptrl_jax.evolution.diversity import jaccard_diversity

# What a candidate is that no operator has proposed.
_KEPT = ('original', 'survive', 'start', 'held out')
_UNSCORED = 'could not be scored'

_Table = tuple[str, str, int]  # strategy, protocol, budget
_Population = tuple[_Table, int, int]  # seed and row, too


class Operators:
  """Counts the candidates in the `generation` rows of a trace.

  A candidate is distinct if its text was not in its population before,
  improved if it is distinct and fitter than its parents, and kept if it is
  distinct and became a parent, survived or closed its problem.
  """

  def __init__(self, trace_rows: Iterable[Mapping[str, Any]] = ()):
    self._counts: dict[tuple[_Table, str], collections.Counter] = {}
    # By population, then by text.
    self._fitness: dict[_Population, dict[str, float]] = {}
    # By population: text -> the counts of what first proposed it, until kept.
    self._proposers: dict[_Population, dict[str, collections.Counter]] = {}
    for row in trace_rows:
      self.add(row)

  def add(self, row: Mapping[str, Any]) -> None:
    """Counts a row; those of an episode come in their order."""
    if row['action'] not in ('generation', 'close'):
      return
    table = _table(row)
    population = table, row['seed'], row['row']
    waiting = self._proposers.setdefault(population, {})
    is_closed = row['action'] == 'close'
    candidates: Sequence[Any] = () if is_closed else row['candidates']
    parents = [parent for one in candidates for parent in one['parents']]
    for text in [row['statement']] if is_closed else parents:
      if text in waiting:
        waiting.pop(text)['kept'] += 1
    known = self._fitness.setdefault(population, {})
    scores = () if is_closed else row['fitness']
    for one, own in zip(candidates, scores, strict=True):
      if one['operator'] not in _KEPT:
        before = [known.get(parent, 0.0) for parent in one['parents']]
        count = self._counts.setdefault(
          (table, one['operator']), collections.Counter()
        )
        is_new = one['statement'] not in known
        _add(
          count,
          refused=one['refused'],
          is_distinct=is_new,
          is_improved=own > max(before, default=0.0),
        )
        if is_new and not one['refused']:
          waiting[one['statement']] = count
      known[one['statement']] = own

  def rows(self) -> list[dict[str, Any]]:
    """A row per strategy, protocol, budget and operator.

    Each has `populations`, `proposed`, `refused` (reason -> number),
    `distinct`, `improved` and `kept`.
    """
    populations = collections.Counter(table for table, _, _ in self._fitness)
    return [
      _row(*table, operator, populations[table], count)
      for (table, operator), count in self._counts.items()
    ]


def of_search(
  strategy: str, protocol: str, history: Iterable[Mapping[str, Any]]
) -> list[dict[str, Any]]:
  """Counts the candidates of a search that was over before the first problem.

  A text that was there before is refused by the search. One is improved if its
  score exceeds that of its best parent on the examples that they were compared
  on; where no such comparison was made, none is. One is kept if it was taken
  into the pool.

  Args:
    strategy: its name in the table.
    protocol: which tests were visible.
    history: its `texts.pool.Step`s as plain data.

  Returns:
    Rows as those of `Operators`, with None for a budget.
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
    counts[step['kind']]['kept'] += step['candidate'] is not None
  return [
    _row(strategy, protocol, None, operator, 1, count)
    for operator, count in counts.items()
  ]


class Islands:
  """How different the candidates of a generation are, island by island."""

  def __init__(self, trace_rows: Iterable[Mapping[str, Any]] = ()):
    self._found: dict[tuple[_Table, int], list[Mapping[str, float]]] = {}
    for row in trace_rows:
      self.add(row)

  def add(self, row: Mapping[str, Any]) -> None:
    """Takes in a row of a trace."""
    for island, numbers in enumerate(row.get('islands', ())):
      self._found.setdefault((_table(row), island), []).append(numbers)

  def rows(self) -> list[dict[str, Any]]:
    """A row per strategy, protocol, budget and island.

    Each has `generations`, the number of those that are averaged, and the means
    of their `candidates`, `distinct` texts and `jaccard` (mean difference of
    the words of two texts, in [0, 1]).
    """
    return [
      _island(*table, island, numbers)
      for (table, island), numbers in self._found.items()
    ]


def pool_of_search(
  strategy: str, protocol: str, history: Iterable[Mapping[str, Any]]
) -> list[dict[str, Any]]:
  """The same of the pool that a search ended with; None for a budget."""
  steps = [step for step in history if step['candidate'] is not None]
  texts = [step['text'] for step in steps]
  numbers = {
    'candidates': len(texts),
    'distinct': len(set(texts)),
    'jaccard': jaccard_diversity(texts),
  }
  return [_island(strategy, protocol, None, 0, [numbers])]


def _table(row: Mapping[str, Any]) -> _Table:
  return row['strategy'], row['protocol'], row['budget']


def _island(
  strategy: str,
  protocol: str,
  budget: int | None,
  island: int,
  numbers: Sequence[Mapping[str, float]],
) -> dict[str, Any]:
  means = {
    name: math.fsum(one[name] for one in numbers) / len(numbers)
    for name in ('candidates', 'distinct', 'jaccard')
  }
  return {
    **{'strategy': strategy, 'protocol': protocol, 'budget': budget},
    **{'island': island, 'generations': len(numbers)},
    **means,
  }


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
    'kept': count['kept'],
  }


def to_markdown(rows: Iterable[Mapping[str, Any]]) -> str:
  """Prints the rows of `Operators` and `of_search`."""
  cells = [
    {
      'strategy': row['strategy'],
      'B': _budget(row),
      'operator': row['operator'],
      'populations': row['populations'],
      'proposed': row['proposed'],
      'refused': reasons(row['refused']),
      'distinct': row['distinct'],
      'improved': row['improved'],
      'kept': row['kept'],
    }
    for row in rows
  ]
  return (
    '### Candidates by operator\n\n'
    'Texts that the operators of searches over words proposed, in all '
    'populations together. Distinct: not in the population before. Improved: '
    'distinct, and better than every parent on what both were scored on. Kept: '
    'distinct, and a parent or survivor later on, or what closed the problem; '
    'in a search, taken into the pool.\n\n'
    f'{markdown.table(cells, "lrlrrlr")}\n'
  )


def islands_to_markdown(rows: Iterable[Mapping[str, Any]]) -> str:
  """Prints the rows of `Islands` and `pool_of_search`."""
  cells = [
    {
      'strategy': row['strategy'],
      'B': _budget(row),
      'island': row['island'] + 1,
      'generations': row['generations'],
      'candidates': f'{row["candidates"]:.1f}',
      'distinct': f'{row["distinct"]:.1f}',
      'Jaccard': f'{row["jaccard"]:.2f}',
    }
    for row in rows
  ]
  return (
    '### Diversity by island\n\n'
    'Means over generations of all problems and seeds; of a search, its pool '
    'at the end. Jaccard: mean over pairs of 1 - |A and B| / |A or B|, A and B '
    'being the words of two texts.\n\n'
    f'{markdown.table(cells)}\n'
  )


def _budget(row: Mapping[str, Any]) -> str | int:
  return 'search' if row['budget'] is None else row['budget']
