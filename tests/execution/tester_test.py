"""Tests that run in a tester process."""

from __future__ import annotations

import pytest

from promptrl_jax.execution import Program

SQUARE = 'def f(x):\n  if x < 0: raise ValueError("negative")\n  return x * x'
CHECK = """
def check(candidate):
  class Local: pass
  try:
    candidate(-1)
    assert False, 'no exception'
  except ValueError as error:
    assert 'neg' in str(error)
  assert candidate(4) == 16
check(f)"""


def isolated(pool, code, *tests):
  program = Program(code, tests, entry_point='f', isolate_tests=True)
  return pool.run([program])[0]


def test_a_test_that_cannot_be_split_is_judged(pool):
  right, wrong = pool.run(
    [
      Program(SQUARE, (CHECK,), entry_point='f'),
      Program(SQUARE.replace('x * x', '2 * x + 9'), (CHECK,), entry_point='f'),
    ]
  )
  assert right.passed
  assert wrong.status == 'failed'


@pytest.mark.parametrize(
  ('test', 'status'),
  [
    ('assert f(2) == 4', 'passed'),
    ('assert f(2) == 5', 'failed'),
    ('assert f(-1) == 5', 'error'),
    ('import sys\nsys.exit(0)', 'error'),
    ('import os\nos._exit(0)', 'invalid'),
    ('import os\nos.kill(os.getppid(), 9)', 'error'),
    ('open("/etc/passwd")', 'error'),
    ('assert True', 'invalid'),
    ('f(1)\nwhile True: pass', 'timeout'),
    ('f(1)\nx = [0] * 10**10', 'error'),
    ('f(object())', 'invalid'),
    ('f(', 'invalid'),
    ('assert __import__("math").isqrt(f(3)) == 3', 'passed'),
  ],
)
def test_verdicts_of_isolated_tests(pool, test, status):
  after = 'assert f(3) == 9'
  result = isolated(pool, SQUARE, test, after)
  assert [t.status for t in result.tests] == [status, 'passed'], result


@pytest.mark.parametrize(
  ('code', 'status'),
  [
    ('class E:\n  __eq__ = lambda *_: True\ndef f(x): return E()', 'invalid'),
    ('import os\ndef f(x): os._exit(0)', 'crash'),
    ('def f(x):\n  while True: pass', 'timeout'),
    ('import sys\ndef f(x): sys.exit(0)', 'error'),
    (
      'def f(x):\n  import builtins\n  builtins.AssertionError = 1\n  return 1',
      'failed',
    ),
    ('def f(x): raise AssertionError', 'failed'),
    ('g = 1', 'error'),
  ],
)
@pytest.mark.parametrize('test', ['assert f(1) == 7', CHECK])
def test_a_program_does_not_reach_the_tester(pool, code, status, test):
  result = isolated(pool, code, test)
  assert result.tests[0].status == status, result


def test_an_isolated_test_needs_the_name_of_its_function(pool):
  program = Program(SQUARE, ('assert f(1) == 1',), isolate_tests=True)
  (result,) = pool.run([program])
  assert result.status == 'invalid'
  assert 'entry_point' in result.tests[0].message


@pytest.mark.parametrize('isolate', [False, True])
def test_a_test_does_nothing_to_the_next_one(pool, isolate):
  spoil = """
import sys
try: f(1)
except ValueError: pass
tester = sys.modules['promptrl_jax.execution.tester']
tester._run_test = lambda *_: ['passed', '', '']
assert True"""
  after = 'try: assert f(2) == 5\nexcept ValueError: pass'
  program = Program(
    SQUARE, (spoil, after), entry_point='f', isolate_tests=isolate
  )
  (result,) = pool.run([program])
  assert [t.status for t in result.tests] == ['passed', 'failed'], result


@pytest.mark.parametrize('name', ['StopIteration', 'StopAsyncIteration'])
def test_a_program_cannot_end_a_loop_of_the_test(pool, name):
  test = 'assert all(map(lambda case: f(case[0]) == case[1], [(1, 7)]))'
  result = isolated(pool, f'def f(x): raise {name}', test)
  assert result.tests[0].status == 'error', result


@pytest.mark.parametrize(
  'greedy',
  [
    'for i in range(5000): open(f"{i}", "w").close()',
    'for i in range(50): os.mkdir(f"../{i}")',
  ],
)
def test_a_program_cannot_keep_its_tester_from_starting(pool, greedy):
  head = f'import os\ntry:\n  {greedy}\nexcept OSError: pass\n'
  result = isolated(pool, head + SQUARE, 'assert f(3) == 9')
  assert result.status == 'passed', result


@pytest.mark.parametrize(
  ('value', 'shown'),
  [('[x]', 'returned [2]'), ('"a" * 10**4', "returned 'aaa"), ('10**5000', '')],
)
def test_a_failed_isolated_test_tells_what_came_back(pool, value, shown):
  result = isolated(pool, f'def f(x): return {value}', 'assert f(2) == 7')
  (test,) = result.tests
  assert test.status == 'failed' and shown in test.message
  assert test.message.startswith('an assertion does not hold')
  assert len(test.message) <= 200
