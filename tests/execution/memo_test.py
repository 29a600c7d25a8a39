"""The pool that remembers results."""

from __future__ import annotations

import pytest

from promptrl_jax.execution import Limits, Program, ProgramResult
from promptrl_jax.execution.memo import MemoPool

RIGHT = Program('def f(x): return x', ('assert f(1) == 1',))
WRONG = Program('def f(x): return 0', ('assert f(1) == 1',))
HANGS = Program(
  'def f(x):\n  while True: pass',
  ('assert f(1) == 1',),
  limits=Limits(cpu_s=0.1, wall_s=10.0),
)


class Counting:
  """Passes programs to a pool and records them."""

  def __init__(self, run):
    self.asked: list[list[Program]] = []
    self._run = run

  def run(self, programs):
    self.asked.append(list(programs))
    return self._run(programs)


@pytest.fixture
def counting(pool):
  return Counting(pool.run)


def statuses(results):
  return [result.status for result in results]


def test_an_equal_program_is_run_once(counting):
  memo = MemoPool(counting)
  first = memo.run([RIGHT, WRONG, RIGHT])
  again = memo.run([WRONG, RIGHT])
  assert statuses(first) == ['passed', 'failed', 'passed']
  assert again == [first[1], first[0]]
  assert counting.asked == [[RIGHT, WRONG], []]


def test_other_tests_or_limits_make_another_program(counting):
  memo = MemoPool(counting)
  memo.run([RIGHT])
  others = [
    Program(RIGHT.code, ('assert f(1) == 2',)),
    Program(RIGHT.code, RIGHT.tests, limits=Limits(cpu_s=3)),
    Program(RIGHT.code, RIGHT.tests, setup='y = 1'),
  ]
  assert statuses(memo.run(others)) == ['failed', 'passed', 'passed']
  assert counting.asked[1] == others


def test_a_timeout_is_run_again(counting):
  memo = MemoPool(counting)
  for _ in range(2):
    assert statuses(memo.run([HANGS, RIGHT])) == ['timeout', 'passed']
  assert counting.asked == [[HANGS, RIGHT], [HANGS]]


def test_a_lost_program_is_run_again():
  lost = ProgramResult('infra_error', None, ())
  answers = [[lost], [ProgramResult('passed', 1.0, ())]]
  memo = MemoPool(Counting(lambda programs: answers.pop(0)))
  assert statuses(memo.run([RIGHT])) == ['infra_error']
  assert statuses(memo.run([RIGHT])) == ['passed']


def test_no_programs_give_no_results(counting):
  assert MemoPool(counting).run([]) == []
