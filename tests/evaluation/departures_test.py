"""Where a policy departs from a list, and what it gains there."""

import dataclasses

import numpy as np
import pytest

from promptrl_jax.evaluation import departures
from promptrl_jax.evaluation.cells import Detail


def cell(make_cell, strategy, passed, actions):
  passed = np.array(passed, bool)
  made = make_cell(
    strategy, 4, seeds=2, problems=3, passed=passed, soft=passed.astype(float)
  )
  details = tuple(
    tuple(Detail(steps=len(a.split()), actions=a) for a in row)
    for row in actions
  )
  return dataclasses.replace(made, details=details)


@pytest.fixture
def pair(make_cell):
  mine = cell(
    make_cell,
    'ppo',
    [[1, 0, 1], [1, 1, 0]],
    [
      ['keep', 'keep repair', 'keep repair'],
      ['keep', 'keep lexical', 'keep semantic'],
    ],
  )
  other = cell(
    make_cell,
    'best_open_loop',
    [[1, 0, 0], [1, 0, 0]],
    [
      ['keep', 'keep resample', 'keep resample'],
      ['keep', 'keep resample', 'keep'],
    ],
  )
  return mine, other


def test_rows_are_first_differences_with_what_each_side_solves(pair):
  rows = {
    (r['step'], r['other'], r['mine']): (
      r['episodes'],
      r['other_passed'],
      r['mine_passed'],
    )
    for r in departures.measure(*pair)
  }
  assert rows == {
    (0, '', ''): (2, 1.0, 1.0),
    (2, 'resample', 'repair'): (2, 0.0, 0.5),
    (2, 'resample', 'lexical'): (1, 0.0, 1.0),
    (2, departures.END, 'semantic'): (1, 0.0, 0.0),
  }


def test_gains_add_up_to_the_difference(pair):
  mine, other = pair
  rows = departures.measure(mine, other)
  gain = sum(
    (r['mine_passed'] - r['other_passed']) * r['episodes'] for r in rows
  )
  assert gain / 6 == pytest.approx(mine.passed.mean() - other.passed.mean())
  text = departures.to_markdown(rows, mine, other)
  assert '| 2 | resample | repair | 2 | 0.0 | 50.0 | +16.67 |' in text


def test_other_budgets_and_missing_details_are_refused(pair):
  mine, other = pair
  with pytest.raises(ValueError, match='equal budgets and seeds'):
    departures.measure(mine, dataclasses.replace(other, budget=5))
  with pytest.raises(ValueError, match='without details'):
    departures.measure(mine, dataclasses.replace(other, details=()))
