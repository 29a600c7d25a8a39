"""Programs and generated tests, weighed against one another."""

from __future__ import annotations

import numpy as np
import pytest

from promptrl_jax.execution import (
  Call,
  CallResult,
  ExecutionPool,
  ExpressionResult,
  Limits,
)
from promptrl_jax.execution.program import ProgramResult, TestResult
from promptrl_jax.rewards import agreement
from promptrl_jax.rewards.agreement import ConsensusSet

# Programs 0 and 3 agree on tests 0, 1, 3; program 1 passes all but the last;
# program 2 passes none; nobody knows about program 4.
PASSED = np.array(
  [
    [1, 1, 0, 1, 0],
    [1, 1, 1, 1, 0],
    [0, 0, 0, 0, 0],
    [1, 1, 0, 1, 0],
    [0, 0, 0, 0, 0],
  ],
  bool,
)
JUDGED = np.array([1, 1, 1, 1, 0], bool)
NO_TESTS = PASSED[:, :0]


def test_consensus_sets_are_scored_by_programs_times_tests():
  sets = agreement.consensus_sets(PASSED, JUDGED)
  assert sets == [
    ConsensusSet((0, 3), (0, 1, 3)),
    ConsensusSet((1,), (0, 1, 2, 3)),
    ConsensusSet((2,), ()),
  ]
  assert [s.score for s in sets] == [6, 4, 0]


def test_the_ranking_ends_with_programs_without_a_verdict():
  assert agreement.rank(PASSED, JUDGED).tolist() == [0, 3, 1, 2, 4]


def test_equal_scores_keep_the_order_of_the_programs():
  passed = np.array([[0, 0], [0, 1], [1, 0]], bool)
  judged = np.ones(3, bool)
  assert agreement.rank(passed, judged).tolist() == [1, 2, 0]
  again = agreement.rank(passed[[0, 2, 1]], judged)
  assert again.tolist() == [1, 2, 0]


def test_numbers_beat_a_lone_program_with_more_tests():
  # 3 programs x 2 tests = 6 > 1 program x 5 tests = 5.
  passed = np.array([[1] * 5] + [[1, 1, 0, 0, 0]] * 3, bool)
  assert agreement.rank(passed, np.ones(4, bool)).tolist() == [1, 2, 3, 0]


def test_without_tests_the_order_stays():
  assert agreement.rank(NO_TESTS, JUDGED).tolist() == [0, 1, 2, 3, 4]
  assert [s.score for s in agreement.consensus_sets(NO_TESTS, JUDGED)] == [0]


def test_without_programs_there_is_nothing():
  passed, judged = np.zeros((0, 3), bool), np.zeros(0, bool)
  assert agreement.consensus_sets(passed, judged) == []
  assert agreement.rank(passed, judged).tolist() == []
  assert agreement.vote(passed, judged).tolist() == [False] * 3


def test_no_tests_or_no_verdict_is_unknown():
  assert agreement.statuses(NO_TESTS, JUDGED) == ['unknown'] * 5
  four = PASSED[:, [0, 1, 3]]
  assert agreement.statuses(four, JUDGED) == [
    *('passed', 'passed', 'failed', 'passed', 'unknown'),
  ]


def test_a_vote_counts_programs_with_a_verdict():
  # Of four voters: 3, 3, 1, 3, 0 pass the tests.
  def vote(at_least):
    return agreement.vote(PASSED, JUDGED, at_least).astype(int).tolist()

  assert vote(0.5) == [1, 1, 0, 1, 0]
  assert vote(0.75) == [1, 1, 0, 1, 0]
  assert vote(0.76) == [0, 0, 0, 0, 0]
  assert vote(0.25) == [1, 1, 1, 1, 0]
  nobody = np.zeros(5, bool)
  assert not agreement.vote(PASSED, nobody).any()


def test_a_vote_at_exactly_the_share_is_enough():
  passed = np.zeros((100, 1), bool)
  passed[:7] = True
  assert agreement.vote(passed, np.ones(100, bool), 0.07).tolist() == [True]


@pytest.mark.parametrize('at_least', [0, -0.1, 1.1, float('nan')])
def test_a_share_out_of_range_is_refused(at_least):
  with pytest.raises(ValueError, match='at_least'):
    agreement.vote(PASSED, JUDGED, at_least)


def test_other_arrays_are_refused():
  with pytest.raises(ValueError, match=r'\(5, 5\).*\(4,\)'):
    agreement.rank(PASSED, JUDGED[:4])
  with pytest.raises(TypeError, match='float64'):
    agreement.statuses(PASSED.astype(float), JUDGED)


# --- The pool -----------------------------------------------------------------

RIGHT = 'def f(x):\n  return x * x'
DOUBLES = 'def f(x):\n  return x + x'
RAISES = 'def f(x):\n  return 1 / 0'
TESTS = ('assert f(2) == 4', 'assert f(3) == 9', 'assert f(3) == 6')


@pytest.fixture(scope='module')
def pool():
  limits = Limits(cpu_s=0.5, idle_s=0.6, wall_s=20.0)
  with ExecutionPool(workers=1, limits=limits) as pool:
    yield pool


def matrix(pool, codes, tests=TESTS, *, entry_point='f', **fields):
  """Runs the programs on the tests; returns the verdicts."""
  fields['entry_point'] = entry_point
  programs = [agreement.to_program(code, tests, **fields) for code in codes]
  return agreement.agreement_matrix(pool.run(programs), len(tests))


def test_the_matrix_has_a_row_per_program_and_a_column_per_test(pool):
  passed, judged = matrix(pool, [DOUBLES, RIGHT, RAISES, '', 'def f(x', RIGHT])
  assert passed.astype(int).tolist() == [
    [1, 0, 1],
    [1, 1, 0],
    [0, 0, 0],
    [0, 0, 0],
    [0, 0, 0],
    [1, 1, 0],
  ]
  assert judged.all()
  assert passed.dtype == judged.dtype == bool
  best = agreement.consensus_sets(passed, judged)[0]
  assert best == ConsensusSet((1, 5), (0, 1))


def test_the_matrix_may_be_empty():
  assert agreement.agreement_matrix([], 3).passed.shape == (0, 3)


def test_setup_reaches_the_program(pool):
  code = 'def f(n):\n  return x * n'
  tests = ("assert f(1) == 'x'", 'assert len(f(5000)) == 5000')
  assert not matrix(pool, [code], tests).passed.any()
  assert matrix(pool, [code], tests, setup="x = 'x'").passed.all()


def test_the_entry_point_reaches_the_judge(pool):
  code = 'def sum(x):\n  return 7'
  tests = ('assert max(sum([1]), 1) == 7',)
  assert matrix(pool, [code], tests, entry_point='sum').passed.tolist() == [
    [True]
  ]
  other = matrix(pool, [code], tests, entry_point='g')
  assert not other.passed.any()  # Python's own sum(1) is no answer.


class Breaking:
  """Loses the programs that say so, as a worker does that is killed."""

  def __init__(self, pool):
    self.calls = 0
    self._pool = pool

  def run(self, programs):
    self.calls += 1
    return [
      ProgramResult(
        'infra_error', None, tuple(TestResult('not_run') for _ in p.tests)
      )
      if 'lost' in p.code
      else result
      for p, result in zip(programs, self._pool.run(programs), strict=True)
    ]


def test_a_lost_program_is_not_a_failed_one(pool):
  breaking = Breaking(pool)
  passed, judged = matrix(
    breaking, [RIGHT + '  # lost', RIGHT, RAISES], TESTS[:2]
  )
  assert judged.tolist() == [False, True, True]
  assert agreement.statuses(passed, judged) == ['unknown', 'passed', 'failed']
  assert agreement.rank(passed, judged).tolist() == [1, 2, 0]
  assert breaking.calls == 1


def groups(pool, codes, inputs):
  limits = Limits(cpu_s=0.2)
  calls = [Call(code, inputs, entry_point='f', limits=limits) for code in codes]
  return agreement.outcome_groups(pool.evaluate(calls))


def test_programs_of_equal_outcomes_form_the_largest_group_first(pool):
  codes = [
    'def f(x): return x + x',
    'def f(x): return 2 * x',
    'def f(x): return x * x',  # Right for 0 and 2.
    'def f(x): return 1 / 0',
    'def f(x): return 2 * float(x)',
    'def f(x):\n  while True: pass',
    'def f(x): return x << 1',
    'def f(x): return [][x]',
    'def f(x): raise ZeroDivisionError("in other words")',
  ]
  inputs = ('f(0)', 'f(2)', 'f(3)')
  found = groups(pool, codes, inputs)
  assert found == [(0, 1, 6), (3, 8), (2,), (4,), (5,), (7,)]
  fewer = groups(pool, codes, inputs[:2])
  assert fewer == [(0, 1, 2, 6), (3, 8), (4,), (5,), (7,)]


def test_what_cannot_be_compared_is_in_no_group(pool):
  long = [f'def f(): return "x" * 20_000 + "{i}"' for i in range(2)]
  odd = ['def f(): return object()'] * 2
  assert groups(pool, [*long, *odd, 'def f(): return 1'], ('f()',)) == [(4,)]
  lost = CallResult('infra_error', (ExpressionResult('not_run'),))
  assert agreement.outcome_groups([lost, lost]) == []


def test_a_value_is_not_what_the_program_says_that_it_is(pool):
  lies = """
class Lie(int):
  def __repr__(self): return '4'
  __str__ = __repr__
  def __eq__(self, other): return True
  __hash__ = int.__hash__

def f(x): return Lie(5)
"""
  codes = ['def f(x): return 4', lies, 'def f(x): return 5']
  assert groups(pool, codes, ('f(2)',)) == [(1, 2), (0,)]
