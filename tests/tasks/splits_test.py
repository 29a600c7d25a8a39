"""Visible and hidden tests per protocol."""

import dataclasses

import pytest

from promptrl_jax.tasks import splits
from promptrl_jax.testing import tiny
from promptrl_jax.types import Problem

TASK = tiny.tasks(1)[0]
PLUS = dataclasses.replace(
  TASK, checker=dataclasses.replace(TASK.checker, extra=1)
)


@pytest.mark.parametrize(
  ('protocol', 'visible'),
  [('blind', 0), ('visible1', 1), ('visible_all', 2), ('oracle', 3)],
)
def test_counts(protocol, visible):
  assert splits.visible_tests(PLUS, protocol) == TASK.tests[:visible]
  hidden = splits.hidden_tests(PLUS, protocol)
  if protocol == 'oracle':
    assert hidden == TASK.tests
  else:
    assert set(hidden).isdisjoint(TASK.tests[:visible])
    assert len(hidden) == 3 - visible


def test_visible_all_needs_further_inputs():
  for protocol in ('blind', 'visible1', 'oracle'):
    assert splits.visible_tests(TASK, protocol) == splits.visible_tests(
      PLUS, protocol
    )
  with pytest.raises(ValueError, match=r'no further inputs.*use mbpp_plus'):
    splits.reveal(TASK, 'visible_all')


def test_a_part_of_a_checker_is_not_divided_any_further():
  problem = splits.reveal_for_training(PLUS, 'visible_all')
  assert problem.visible.extra == problem.reward.extra == 0
  assert splits.for_reward(problem) == TASK.checker


def test_a_problem_has_no_hidden_test():
  problem = splits.reveal(TASK, 'visible1')
  text = repr(dataclasses.asdict(problem))
  assert TASK.tests[0] in text
  assert not any(test in text for test in TASK.tests[1:])
  assert TASK.reference not in text


def test_training_problems_may_be_rewarded_by_all_tests():
  problem = splits.reveal_for_training(TASK, 'visible1')
  assert problem.reward_tests == TASK.tests[1:]


def test_only_training_problems_may():
  with pytest.raises(ValueError, match='only training tasks'):
    splits.reveal_for_training(tiny.tasks(1, 'test')[0], 'visible1')


def test_visible1_needs_a_test_to_hide():
  task = tiny.with_tests(TASK, TASK.tests[:1])
  with pytest.raises(ValueError, match='none would be hidden'):
    splits.reveal(task, 'visible1')


def test_problem_fields_are_those_a_solver_may_know():
  names = {field.name for field in dataclasses.fields(Problem)}
  assert names == {
    'task_id',
    'statement',
    'visible',
    'reward',
    'split',  # keeps the answers of a cache apart
  }
