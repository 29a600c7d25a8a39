"""Test functions and scripts become single assertions."""

import pytest

from promptrl_jax.execution import Program
from promptrl_jax.tasks import check_function

PROGRAM = 'def total(items):\n  return sum(items)'


def passed(pool, code, tests):
  (result,) = pool.run([Program(code, tests, entry_point='total')])
  return [test.status == 'passed' for test in result.tests]


def test_each_assertion_is_a_test_in_the_name_of_the_function(pool):
  tests = check_function.of_function(
    """
METADATA = {'author': 'x'}

def check(candidate):
  # Some cases.
  assert True, 'prints'
  assert candidate([1, 2]) == 3, 'Test 1'
  assert candidate(
    []) == 0
""",
    'total',
  )
  assert tests == ('assert total([1, 2]) == 3', 'assert total([]) == 0')
  assert passed(pool, PROGRAM, tests) == [True, True]
  assert passed(pool, 'def total(items):\n  return 3', tests) == [True, False]


def test_an_assertion_keeps_what_it_needs_and_nothing_else(pool):
  tests = check_function.of_function(
    """
import math
import random

def double(x):
  return 2 * x

def check(candidate):
  unused = 5
  items = list(range(4))
  items.append(double(3))
  print('Start')
  assert candidate([7]) == 7
  assert candidate(items) == 12
  assert math.isclose(candidate([0.1, 0.2]), 0.3)
""",
    'total',
  )
  assert tests[0] == 'assert total([7]) == 7'
  assert tests[1] == (
    'def double(x):\n    return 2 * x\n'
    'items = list(range(4))\nitems.append(double(3))\n'
    'assert total(items) == 12'
  )
  assert tests[2].startswith('import math\nassert')
  assert passed(pool, PROGRAM, tests) == [True] * 3


def test_a_loop_stays_one_test(pool):
  tests = check_function.of_function(
    """
def check(candidate):
  import random
  assert candidate([]) == 0
  rng = random.Random(0)
  for size in range(20):
    items = [rng.randint(0, 9) for _ in range(size)]
    assert candidate(items) == sum(items)
""",
    'total',
  )
  assert len(tests) == 2
  assert tests[1].count('assert') == 1
  assert passed(pool, PROGRAM, tests) == [True, True]
  wrong = 'def total(items):\n  return sum(items[:9])'
  assert passed(pool, wrong, tests) == [True, False]


def test_a_variable_of_the_name_of_the_function_gets_another(pool):
  tests = check_function.of_function(
    """
def check(candidate):
  total = 3
  assert candidate([1, 2]) == total
""",
    'total',
  )
  assert tests == ('total_ = 3\nassert total([1, 2]) == total_',)
  assert passed(pool, PROGRAM, tests) == [True]
  assert passed(pool, 'def total(items):\n  return 4', tests) == [False]


def test_a_script_is_split_too():
  tests = check_function.of_script(
    'import math\nassert f(1) == 2\nassert math.isclose(f(2), 3)\n', 'f'
  )
  assert tests == (
    'assert f(1) == 2',
    'import math\nassert math.isclose(f(2), 3)',
  )


@pytest.mark.parametrize(
  ('source', 'message'),
  [
    ('def check(candidate):\n  assert (', 'do not parse'),
    ('def test(candidate):\n  assert candidate(1)', r'no function check'),
    ('def check(f):\n  assert f(1)', r'no function check\(candidate\)'),
    ('def check(candidate):\n  assert True', "no assertion on 'total'"),
    ('def check(candidate):\n  pass', "no assertion on 'total'"),
  ],
)
def test_other_code_is_refused(source, message):
  with pytest.raises(ValueError, match=message):
    check_function.of_function(source, 'total')


def test_a_reference_gets_another_name_and_loses_what_tests_do_not_need():
  source = """
from typing import List
def fact(n: int) -> List[int]:
  \"\"\"Doc.\"\"\"
  return 1 if n < 2 else n * fact(n - 1)
"""
  assert check_function.renamed(source, 'fact', 'right') == (
    'def right(n):\n    return 1 if n < 2 else n * right(n - 1)'
  )
