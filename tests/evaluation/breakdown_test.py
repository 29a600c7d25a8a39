"""Problems by kind, and those that one strategy solves alone."""

import dataclasses

import pytest

from promptrl_jax.evaluation import breakdown
from tests.evaluation.html_run import CELLS, FAMILIES, TASKS, make_cell


def test_shares_of_groups_are_means_over_their_problems_and_seeds():
  groups = dict(zip(TASKS, FAMILIES, strict=True))
  found = breakdown.by_group(CELLS[2:4], groups)
  assert found['groups'] == [
    {'name': 'sorts', 'problems': 3},
    {'name': 'sums', 'problems': 2},  # One problem has no family.
  ]
  assert found['cells'] == [
    {'strategy': 'ppo', 'budget': 1, 'rates': [0.0, 0.75]},
    {'strategy': 'ppo', 'budget': 4, 'rates': [2 / 6, 1.0]},
  ]


@pytest.mark.parametrize('cells', [(), CELLS])
def test_without_names_there_are_no_groups(cells):
  assert breakdown.by_group(cells, {}) == {'groups': [], 'cells': []}


def test_a_problem_is_solved_alone_in_half_of_the_seeds_and_by_no_other():
  # The third problem is the bandit's as well; the fifth is solved once of two.
  assert breakdown.solved_alone(CELLS) == [
    {'budget': 1, 'strategies': ['ppo'], 'problems': ['mini/1']},
    {'budget': 4, 'strategies': ['ppo'], 'problems': ['mini/1', 'mini/4']},
  ]


def test_less_than_half_of_the_seeds_is_luck():
  lucky = make_cell('lucky', 4, [[1] + [0] * 5, [0] * 6, [0] * 6])
  assert breakdown.solved_alone([lucky, make_cell('none', 4, [[0] * 6])]) == []


def test_a_strategy_under_two_names_counts_as_one():
  ppo = CELLS[3]
  double = dataclasses.replace(ppo, strategy='best_fixed')
  (row,) = breakdown.solved_alone([CELLS[1], ppo, double])
  assert row['strategies'] == ['ppo', 'best_fixed']
  assert row['problems'] == ['mini/1', 'mini/2', 'mini/4']
  # With one seed instead of two equal ones it is still the same strategy.
  once = make_cell('once', 4, CELLS[4].passed[:1])
  (row,) = breakdown.solved_alone([CELLS[1], CELLS[4], once])
  assert row['strategies'] == ['bandit', 'once']


def test_cells_of_other_problems_are_refused():
  other = dataclasses.replace(CELLS[1], task_ids=tuple('abcdef'))
  for call in (
    lambda: breakdown.by_group([CELLS[3], other], {'a': 'x'}),
    lambda: breakdown.solved_alone([CELLS[3], other]),
  ):
    with pytest.raises(ValueError, match='differ'):
      call()
