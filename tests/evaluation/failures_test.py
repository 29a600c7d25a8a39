"""Tests of the table of attempts in which a strategy itself failed."""

import dataclasses

from promptrl_jax.evaluation import failures
from tests.evaluation.html_run import make_cell


def with_errors(cell, *errors):
  """The cell with errors of the first problems of its first seed."""
  first, *others = cell.details
  broken = [
    dataclasses.replace(d, error=e) for d, e in zip(first, errors, strict=False)
  ]
  details = (*broken, *first[len(broken) :])
  return dataclasses.replace(cell, details=(details, *others))


CELL = make_cell('mine', 4, [[0] * 6, [0] * 6])


def test_errors_are_counted_by_what_they_say():
  cell = with_errors(
    CELL, 'KeyError: 3', '', 'submitted nothing', 'KeyError: 3'
  )
  assert failures.count([CELL, cell]) == [
    {
      **{'strategy': 'mine', 'protocol': 'visible1', 'budget': 4},
      'attempts': 12,
      'failed': {'KeyError: 3': 2, 'submitted nothing': 1},
    }
  ]


def test_rare_errors_are_counted_together_and_long_ones_are_cut():
  cell = with_errors(CELL, *'aabbcd', 'e')
  (row,) = failures.count([cell])
  assert row['failed'] == {'a': 2, 'b': 2, 'c': 1, 'other errors': 1}
  (row,) = failures.count([with_errors(CELL, 'long ' * 1000)])
  assert max(map(len, row['failed'])) == 120


def test_a_table_says_how_many_of_the_attempts_failed():
  printed = failures.to_markdown(
    failures.count([with_errors(CELL, 'KeyError: 3', 'KeyError: 3')])
  )
  assert '| mine | 4 | 12 | 2 (2 KeyError: 3) |' in printed
  assert failures.to_markdown(failures.count([CELL])) == ''
  nothing_known = dataclasses.replace(CELL, details=())
  assert failures.count([nothing_known]) == []
