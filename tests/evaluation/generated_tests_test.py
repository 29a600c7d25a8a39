"""What reference programs say of generated tests."""

from __future__ import annotations

import dataclasses

import pytest

from promptrl_jax.evaluation.generated_tests import (
  check_against_reference,
  of_trace,
  to_markdown,
)
from promptrl_jax.execution import SystemFailure
from promptrl_jax.execution.program import ProgramResult
from promptrl_jax.testing import tiny

TASKS = tiny.tasks(4)  # `add`: the argument plus 0, 1, 2, 3
TESTS = (
  ('assert add(1) == 1', 'assert add(5) == 5'),
  ('assert add(1) == 1', 'assert add(1) == 2', 'assert add(-1) == 0'),
  (),
  ('assert add(0) == 4',),
)


def test_the_share_of_tests_that_references_pass(pool):
  report = check_against_reference(TESTS, TASKS, pool)
  assert dataclasses.asdict(report) == {
    'tasks': 4,
    'tasks_without_tests': 1,
    'tasks_all_passed': 1,
    'tests': 6,
    'tests_passed': 4,
  }
  assert report.share == pytest.approx(4 / 6)


def test_without_tests_there_is_no_share(pool):
  assert check_against_reference([()] * 4, TASKS, pool).share is None
  assert check_against_reference([], [], pool).share is None


def test_a_task_without_reference_is_named(pool):
  bare = dataclasses.replace(TASKS[1], reference='')
  with pytest.raises(ValueError, match=bare.task_id):
    check_against_reference(TESTS[1:2], [bare], pool)
  assert check_against_reference([()], [bare], pool).tests == 0


def test_one_collection_per_task(pool):
  with pytest.raises(ValueError, match='4 collections of tests for 2 tasks'):
    check_against_reference(TESTS, TASKS[:2], pool)


class Lost:
  """A pool whose workers cannot be kept alive."""

  def run(self, programs):
    return [ProgramResult('infra_error', None, ()) for _ in programs]


def test_a_lost_program_makes_no_number():
  with pytest.raises(SystemFailure, match=TASKS[0].task_id):
    check_against_reference(TESTS, TASKS, Lost())


def test_the_tests_of_a_trace_by_strategy_and_budget(pool):
  def row(strategy, seed, task, tests, action='write_tests'):
    return {
      'strategy': strategy,
      'protocol': 'visible1',
      'budget': 4,
      'action': action,
      'seed': seed,
      'task_id': TASKS[task].task_id,
      'tests': tests,
    }

  bare = dataclasses.replace(TASKS[3], reference='')
  rows = [
    row('codet', 0, 0, TESTS[0]),
    row('codet', 1, 0, ('assert add(1) == 3',)),
    row('codet', 0, 1, TESTS[1][:1]),
    row('codet', 0, 1, TESTS[1][1:]),  # asked twice for one problem
    row('codet', 0, 1, ('assert False',), action='select'),
    row('codet', 0, 2, ()),
    row('codet', 0, 3, ('assert False',)),
    row('epic', 0, 0, TESTS[0]),
  ]
  codet, epic = of_trace(rows, (*TASKS[:3], bare), pool)
  assert codet == {
    'strategy': 'codet',
    'protocol': 'visible1',
    'budget': 4,
    'tasks': 4,
    'tasks_without_tests': 1,
    'tasks_all_passed': 1,
    'tests': 6,
    'tests_passed': 4,
  }
  assert epic['strategy'] == 'epic' and epic['tests_passed'] == 2
  assert '| codet | 4 | 4 | 1 | 6 | 66.7 | 1 |' in to_markdown([codet, epic])
  assert to_markdown(of_trace([], TASKS, pool)) == ''
