"""EPiC on islands: who is whose parent, who moves on, and how it is counted."""

import dataclasses

from promptrl_jax.evaluation import diversity
from promptrl_jax.evolution.islands import IslandsConfig
from promptrl_jax.strategies.epic import epic_with
from promptrl_jax.strategies.epic_config import FIXED
from tests.strategies.epic_test import (
  TASK,
  WORDS,
  answers,
  generations,
  rows_of,
)


def by_island(row, count):
  """Statements of a generation after the first, island by island."""
  sizes = [one['candidates'] for one in row['islands']]
  assert len(sizes) == count and sum(sizes) == len(row['candidates'])
  left = iter(row['candidates'])
  return [[next(left) for _ in range(size)] for size in sizes]


ISLANDS = dataclasses.replace(FIXED, validate=0.0, generations=3, population=6)


def test_islands_have_parents_of_their_own(play):
  config = dataclasses.replace(ISLANDS, islands=IslandsConfig(2, every=0))
  (played,), _ = play(epic_with(config), answers({1: 3, 2: 4}), budget=60)
  first, second, third = generations(played)
  # The original is on both, the others are dealt out.
  assert [one['candidates'] for one in first['islands']] == [4, 4]
  assert len(first['candidates']) == 7
  dealt = [c['statement'] for c in first['candidates'][1:]]
  for row, before in (
    (second, [{TASK.statement, *dealt[:3]}, {TASK.statement, *dealt[3:]}]),
    (
      third,
      [{c['statement'] for c in i} for i in by_island(second, 2)],
    ),
  ):
    for island, parents in zip(by_island(row, 2), before, strict=True):
      assert len(island) == 3 and island[0]['operator'] == 'survive'
      assert {p for c in island for p in c['parents']} <= parents
  assert dealt[0].endswith('variant 0.') and dealt[3].endswith('variant 1.')
  assert not rows_of(played, 'migrate')


def test_the_best_of_an_island_becomes_a_parent_on_the_next_one(play):
  config = dataclasses.replace(ISLANDS, islands=IslandsConfig(2, every=2))
  (played,), _ = play(epic_with(config), answers({1: 4}), budget=60)
  # Variant 1 is the best of the second island, and of both after it moved.
  (moved,) = rows_of(played, 'migrate')
  assert moved['generation'] == 2
  assert moved['arrived'][0] == [f'{WORDS} 1.']
  _, second, third = generations(played)
  first_island, _ = by_island(second, 2)
  assert f'{WORDS} 1.' not in [c['statement'] for c in first_island]
  assert [i[0]['statement'] for i in by_island(third, 2)] == [f'{WORDS} 1.'] * 2
  trace = [
    {**row, 'strategy': 'epic', 'protocol': 'visible1'}
    for row in played.attempt.trace
  ]
  rows = diversity.Islands(trace).rows()
  assert [(r['island'], r['generations']) for r in rows] == [(0, 3), (1, 3)]
  assert all(0 < r['jaccard'] < 1 for r in rows)
  elaborated, mutated = diversity.Operators(trace).rows()
  # Who survives is kept, and so is every parent.
  assert 1 <= elaborated['kept'] <= 6 and mutated['operator'] == 'lexical'


def test_one_island_is_the_population_that_was_published(play):
  runs = [
    play(epic_with(dataclasses.replace(FIXED, **change)), answers({1: 3}))[0]
    for change in ({}, {'islands': IslandsConfig(1, every=2, migrants=3)})
  ]
  traces = [played.attempt.trace for (played,) in runs]
  assert traces[0] == traces[1]
  (numbers,) = generations(runs[0][0])[0]['islands']
  assert numbers['candidates'] == numbers['distinct']
