"""What reference programs say of generated tests."""

from __future__ import annotations

import dataclasses

import pytest

from promptrl_jax.evaluation.generated_tests import check_against_reference
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
