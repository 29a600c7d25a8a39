"""Overlaps between the splits of a task set.

A result on test tasks means little if training tasks repeat them.
`check_no_leak` compares every pair of splits, few-shot examples included:

| kind             | the two tasks have                         | policy   |
|------------------|--------------------------------------------|----------|
| `task_id`        | the same id                                | error    |
| `same tests`     | the same statement and the same tests      | error    |
| `same statement` | the same statement, but other tests        | reported |
| `near duplicate` | statements that share most word trigrams   | reported |

Experiments leave training tasks that overlap with validation or test out of
training. Of other pairs with the same statement both tasks stay: `tools.leaks`
ends with an error where there are some.

Statements are compared without case, punctuation and white space. The last two
kinds are looked for only where statements identify tasks: in minicode a
statement may leave out a detail that the tests tell, so that different problems
are worded alike by design.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import math
import re
from collections.abc import (
  Callable,
  Hashable,
  Iterable,
  Iterator,
  Mapping,
  Sequence,
)

from promptrl_jax.types import Task, UnitTests

TASK_ID = 'task_id'
SAME_TESTS = 'same tests'
SAME_STATEMENT = 'same statement'
NEAR_DUPLICATE = 'near duplicate'
KINDS = (TASK_ID, SAME_TESTS, SAME_STATEMENT, NEAR_DUPLICATE)
_ERRORS = (TASK_ID, SAME_TESTS)
_EVALUATED = ('validation', 'test')

# Shingles are runs of this many words (Broder, "On the resemblance and
# containment of documents", 1997). MBPP's statements have 15 words on average.
SHINGLE_WORDS = 3
# Two statements are near-duplicates from this Jaccard similarity of their sets
# of shingles on, the value with which Lee et al., "Deduplicating Training Data
# Makes Language Models Better" (arXiv 2107.06499), find near-duplicates. Of
# MBPP's 14 pairs above it, 8 ask for the same and 6 for another shape; at 0.7
# most pairs are different tasks that share a phrase.
NEAR_DUPLICATE_SIMILARITY = 0.8

_ROUNDING = 1e-9  # A threshold times a size may come out above the integer.
_Shingles = frozenset[tuple[str, ...]]


@dataclasses.dataclass(frozen=True)
class Overlap:
  """Two tasks of different splits that should not both be there.

  Attributes:
    kind: one of `KINDS`.
    splits: names of the two splits.
    task_ids: the two tasks, in the order of `splits`.
    similarity: Jaccard similarity of the statements' shingles; 1 for all kinds
      but `near duplicate`.
  """

  kind: str
  splits: tuple[str, str]
  task_ids: tuple[str, str]
  similarity: float = 1.0

  def __str__(self) -> str:
    (split, other), (task_id, other_id) = self.splits, self.task_ids
    value = f' ({self.similarity:.2f})' if self.kind == NEAR_DUPLICATE else ''
    return f'{self.kind}{value}: {task_id} of {split}, {other_id} of {other}'


@dataclasses.dataclass(frozen=True)
class OverlapReport:
  """All overlaps between the splits of a task set.

  Attributes:
    overlaps: at most one for each pair of tasks, the first kind in the order of
      `KINDS` that applies.
  """

  overlaps: tuple[Overlap, ...] = ()

  def counts(self) -> dict[tuple[tuple[str, str], str], int]:
    """Returns the number of pairs for each (splits, kind) that occurs."""
    return dict(collections.Counter((o.splits, o.kind) for o in self.overlaps))

  def errors(self) -> tuple[Overlap, ...]:
    """Returns the overlaps that no task set may have."""
    return tuple(o for o in self.overlaps if o.kind in _ERRORS)

  def train_ids(self) -> frozenset[str]:
    """Returns the training tasks that overlap with validation or test tasks."""
    return frozenset(
      o.task_ids[o.splits.index('train')]
      for o in self.overlaps
      if 'train' in o.splits and set(o.splits) & set(_EVALUATED)
    )

  def kept_statements(self) -> tuple[Overlap, ...]:
    """Returns pairs with the same statement of which `train_ids` has none."""
    left_out = self.train_ids()
    return tuple(
      o
      for o in self.overlaps
      if o.kind == SAME_STATEMENT and not left_out.intersection(o.task_ids)
    )


def check_no_leak(
  parts: Mapping[str, Sequence[Task]], statements_identify: bool = True
) -> OverlapReport:
  """Raises if two splits share a task, and reports weaker overlaps.

  Args:
    statements_identify: whether tasks with the same statement are the same
      task; False looks for the kinds `task_id` and `same tests` alone.

  Raises:
    ValueError: two splits share a task id, or a statement together with its
      tests.
  """
  report = find_overlaps(parts, statements_identify)
  errors = report.errors()
  if errors:
    (split, other), (task_id, other_id) = errors[0].splits, errors[0].task_ids
    raise ValueError(
      f'{other_id} of {other!r} is also {task_id} of {split!r} '
      f'({errors[0].kind}; {len(errors)} such pairs): remove one of the two '
      'from the data'
    )
  return report


def find_overlaps(
  parts: Mapping[str, Sequence[Task]], statements_identify: bool = True
) -> OverlapReport:
  """Compares every pair of splits, as `check_no_leak` without its errors."""
  overlaps = []
  for splits in itertools.combinations(parts, 2):
    first, second = parts[splits[0]], parts[splits[1]]
    kinds = dict.fromkeys(_equal(first, second, lambda t: t.task_id), TASK_ID)
    same_tests = _equal(first, second, _demand)
    kinds = dict.fromkeys(same_tests, SAME_TESTS) | kinds
    similarities: dict[tuple[int, int], float] = {}
    if statements_identify:
      same = _equal(first, second, lambda t: _words(t.statement))
      similarities = near_duplicates(
        [t.statement for t in first], [t.statement for t in second]
      )
      kinds = (
        dict.fromkeys(similarities, NEAR_DUPLICATE)
        | dict.fromkeys(same, SAME_STATEMENT)
        | kinds
      )
    overlaps += [
      Overlap(
        kind,
        splits,
        (first[i].task_id, second[j].task_id),
        similarities[i, j] if kind == NEAR_DUPLICATE else 1.0,
      )
      for (i, j), kind in sorted(kinds.items())
    ]
  return OverlapReport(tuple(overlaps))


def near_duplicates(
  first: Sequence[str],
  second: Sequence[str],
  threshold: float = NEAR_DUPLICATE_SIMILARITY,
) -> dict[tuple[int, int], float]:
  """Pairs of texts whose word shingles have a high Jaccard similarity.

  The result is exact. Only pairs that share a rare shingle are compared: if two
  sets are that similar, they also meet among the first |A| - ceil(t |A|) + 1
  shingles of A, with all shingles in one order (the prefix filter of Bayardo
  et al., "Scaling Up All Pairs Similarity Search", 2007).

  Args:
    threshold: least similarity t, in (0, 1].

  Returns:
    (index in `first`, index in `second`) -> Jaccard similarity.
  """
  if not 0 < threshold <= 1:
    raise ValueError(f'threshold={threshold}: expected a number in (0, 1]')
  sets = [[_shingles(text) for text in texts] for texts in (first, second)]
  frequency = collections.Counter(
    itertools.chain.from_iterable(itertools.chain(*sets))
  )
  index = collections.defaultdict(list)
  for i, shingles in enumerate(sets[0]):
    for shingle in _rarest(shingles, frequency, threshold):
      index[shingle].append(i)
  similarities = {}
  for j, shingles in enumerate(sets[1]):
    rare = _rarest(shingles, frequency, threshold)
    for i in {i for shingle in rare for i in index[shingle]}:
      shared = len(sets[0][i] & shingles)
      similarity = shared / (len(sets[0][i]) + len(shingles) - shared)
      if similarity >= threshold:
        similarities[i, j] = similarity
  return similarities


def _equal(
  first: Iterable[Task], second: Iterable[Task], key: Callable[[Task], Hashable]
) -> Iterator[tuple[int, int]]:
  """Yields the index pairs of tasks that have the same key."""
  places = collections.defaultdict(list)
  for i, task in enumerate(first):
    places[key(task)].append(i)
  for j, task in enumerate(second):
    yield from ((i, j) for i in places.get(key(task), ()))


def _demand(task: Task) -> Hashable:
  """The statement with the tests or right answers that it asks for."""
  checker = task.checker
  judged_by = checker.tests if isinstance(checker, UnitTests) else checker
  return _words(task.statement), judged_by


def _words(text: str) -> tuple[str, ...]:
  return tuple(re.findall(r'\w+', text.lower()))


def _shingles(text: str) -> _Shingles:
  words = _words(text)
  starts = range(max(1, len(words) - SHINGLE_WORDS + 1))
  return frozenset(words[i : i + SHINGLE_WORDS] for i in starts)


def _rarest(
  shingles: _Shingles, frequency: Mapping, threshold: float
) -> list[tuple[str, ...]]:
  """The shingles of which a similar set has at least one among its own."""
  count = len(shingles) - math.ceil(threshold * len(shingles) - _ROUNDING) + 1
  return sorted(shingles, key=lambda s: (frequency[s], s))[:count]
