from __future__ import annotations

import pytest

from promptrl_jax.execution import split


def sources(test, **kwargs):
  return [call.source for call in split.split(test, **kwargs).calls]


@pytest.mark.parametrize(
  ('test', 'expected'),
  [
    ('assert f([1]) == 2', ['f([1])']),
    ('assert f(1) == f(2)', ['f(1)', 'f(2)']),
    ('assert f(g(1)) == 2', ['f(g(1))']),
    ('assert set(f(1)) == set((1, 2))', ['f(1)']),
    ('assert math.isclose(f(1), 2)', ['f(1)']),
    ('import math as m\nassert m.isclose(f(1), 2)', ['f(1)']),
    ('from math import isclose\nassert isclose(f(1), 2)', ['f(1)']),
    ('assert f(sys.maxsize) == sys.getsizeof(1)', ['f(sys.maxsize)']),
    ("assert ' '.join(f(1)) == 'a'", ['f(1)']),
    ("assert f('a').strip()[0] == 'a'", ["f('a')"]),
    ('assert Solution().two_sum([1]) == 2', ['Solution().two_sum([1])']),
    ('assert Solution.two_sum([1]) == 2', ['Solution.two_sum([1])']),
    ('assert f(1)(2) == 3', ['f(1)(2)']),
    ('assert f(1).x == 3', ['f(1).x']),
    ('assert sum(10, 15) == 6', ['sum(10, 15)']),
    ('assert int(f("1")) == 1', ['f("1")']),
    ('r = f(1)\nassert r == 2', ['r']),
    ('p = P(1)\np.x = 3\nassert p.get_x() == 3', ['p.get_x()']),
    ('  assert f(1) == 2\r\n', ['f(1)']),
    ('assert copy([1]) == [1]', ['copy([1])']),
    ('from copy import copy\nassert f(copy([1])) == 1', ['f(copy([1]))']),
    ('ok = f(1) == 2\nassert ok', ['f(1)']),
  ],
)
def test_the_calls_of_the_program_are_split_off(test, expected):
  assert sources(test) == expected


def test_an_entry_point_may_bear_the_name_of_a_builtin():
  test = 'assert max([1, 2]) == len([1, 2])'
  assert sources(test, entry_point='max') == ['max([1, 2])']
  assert sources(test, entry_point='len') == ['len([1, 2])']


def test_expected_values_never_go_to_the_program():
  plan = split.split(
    'x = [1]\nexpected = 12345\nr = f(x)\nassert r == expected, 67890'
  )
  shown = [step.remote for step in plan.steps if step.remote]
  shown += [call.source for call in plan.calls]
  assert shown == ['r = f(x)', 'r']
  assert plan.steps[2].names == ('x',)


def test_setup_is_run_by_the_judge_only_where_the_test_needs_it():
  setup = 'import os\nroot = Node(1)\nexpected = 3'
  plan = split.split('assert f(root) == 3', setup)
  assert [call.source for call in plan.calls] == ['f(root)']
  assert len(plan.steps) == 1
  assert len(split.split('assert f(1) == expected', setup).steps) > 1


@pytest.mark.parametrize(
  ('test', 'why'),
  [
    ('assert', 'does not parse'),
    ('f(1)', 'no assert'),
    ('assert 1 == 1', 'calls no function'),
    ('assert f(1) == LIMIT', 'LIMIT'),
    ('assert f(1) == open("a").read()', 'open'),
    ('assert f(1) == eval("1")', 'eval'),
    ('assert f(1) == ().__class__', '__class__'),
    ('assert f(1) == __import__("os")', '__import__'),
    ('import numpy as np\nassert np.allclose(f(1), 1)', 'np'),
    ('import os\ne = os.getpid()\nassert f(1) == e', "'e'"),
    ('try:\n  assert f(1) == 1\nexcept ValueError: pass', 'exceptions'),
    ('class A: pass\nassert f(1) == A()', 'A'),
    ('math.pi = 3\nassert f(1) == math.pi', 'sets the attribute'),
    ('for p in [P(1)]:\n  p.x = 2\n  assert f(p) == 1', 'sets the attribute'),
    ('r = f(1)\nr += len([1])\nassert r == 2', 'too involved'),
    ('assert ' + '(' * 500 + 'f(1)' + ')' * 500 + ' == 1', 'does not parse'),
  ],
)
def test_what_cannot_be_judged_is_refused_with_the_reason(test, why):
  with pytest.raises(split.CannotSplitError, match=why):
    split.split(test)


@pytest.mark.parametrize(
  ('test', 'status'),
  [
    ('assert f(1) == 2 or f(2) == 2', 'passed'),
    ('assert f(1) == 1 or crash()', 'passed'),
    ('assert f(1) == 2 and crash()', 'failed'),
    ('assert all(f(x) == y for x, y in [(1, 1), (2, 2)])', 'passed'),
    ('assert all(f(x) == y for x, y in [(1, 1), (2, 3)])', 'failed'),
    ('for x, y in [(1, 1), (2, 2)]:\n  assert f(x) == y', 'passed'),
    ('for x, y in [(1, 1), (2, 3)]:\n  assert f(x) == y', 'failed'),
    ('for x in []:\n  assert f(x) == 1', 'invalid'),
    ('def check(g):\n  assert g(1) == 1\ncheck(f)', 'passed'),
    ('def check(g):\n  assert g(1) == 2\ncheck(f)', 'failed'),
    ('def near(a, b): return abs(a - b) < 1\nassert near(f(1), 1.5)', 'passed'),
    ('x = [3, 1]\nsort(x)\nassert x == [1, 3]', 'passed'),
    ('x = [3, 1]\nsort(x)\nassert x == [3, 1]', 'failed'),
    ('p = P(1)\np.v = 3\nassert p.read() == 3', 'passed'),
    ('x = 1\nx += f(2)\nassert x == 3', 'passed'),
    ('x = [1]\nx.append(2)\nassert f(x) == [1, 2]', 'passed'),
    (
      'key = lambda v: -v\nassert f(sorted([1, 2], key=key)) == [2, 1]',
      'passed',
    ),
    ('assert apply(lambda v: v + 1, 1) == 2', 'passed'),
    ('import random\nrandom.seed(1)\nassert f(1) == 1', 'passed'),
    ('assert list(count(3)) == [0, 1, 2]', 'passed'),
    ('assert count(3) == [0, 1, 2]', 'invalid'),
    ('assert isinstance(f([]), list) and type(f(())) is tuple', 'passed'),
    ('assert f(None) is None and f(True) is True', 'passed'),
    ('assert f(1) + "a" == 2', 'error'),
    ('assert f(undefined) == 1', 'error'),
    ('assert undefined(1) == 1', 'error'),
  ],
)
def test_a_test_means_what_python_says_it_means(judge, test, status):
  code = """
class P:
  def __init__(self, v): self.v = v
  def read(self): return self.v
def f(x): return x
def crash(): 1 / 0
def sort(x): x.sort()
def apply(g, x): return g(x)
def count(n): yield from range(n)"""
  result = judge(code, test)
  assert result.tests[0].status == status, result


def test_a_variable_of_a_test_does_not_change_the_programs_globals(judge):
  code = 'x = 5\ndef f(y): return x + y'
  test = 'assert all(f(x) == y for x, y in [(1, 6), (2, 7)])'
  assert judge(code, test, 'assert f(1) == 6').passed


def test_a_message_shows_the_values_of_names_in_the_call(judge):
  result = judge('def f(x): return x', 'for x in [7]:\n  assert f(x) == 8')
  assert result.tests[0].message == 'f(x) with x = 7 returned 7, expected 8'


# Searches every place that a program can reach for the expected value, 90017,
# which occurs nowhere by chance.
PEEKS = """
import sys
def seen(frame):
  while frame:
    yield from list(frame.f_locals.values())
    yield from list(frame.f_globals.values())
    frame = frame.f_back
def f(*args):
  for value in seen(sys._getframe(1)):
    if isinstance(value, (list, tuple, dict)) and '90017' in repr(value):
      return 90017
    if getattr(value, '__name__', '') == 'expected': return value(1)
  return 0
class Box:
  def __init__(self, *args): self.value = f(*args)"""


@pytest.mark.parametrize(
  'test',
  [
    'for case in [(1, 90017)]: assert f(case[0]) == case[1]',
    'for case in [([1], 90017)]: assert f(*case[0]) == case[1]',
    "c = {'in': 1, 'out': 90017}\nassert f(c['in']) == c['out']",
    'assert all(f(c[0]) == c[-1] for c in [(1, 90017)])',
    'c = [1, 90017]\nfor i in [0]: assert f(c[i], 2) == c[i + 1]',
    'c = (1, 90017)\nr = f(c[0])\nassert r == c[1]',
    'c = (1, 90017)\nbox = Box(c[0])\nassert box.value == c[1]',
    'cs = [(1, 90017)]\nassert f([c[0] for c in cs]) == [c[1] for c in cs][0]',
    'cs = [(1, 90017)]\nassert f([i for i, _ in cs if i < 9]) == cs[0][1]',
    'cs = {1: 90017}\nfor e in [90017]: assert f([k for k in cs]) == e',
    'def expected(x): return x + 90016\nassert f(1) == expected(1)',
    'expected = lambda x: x + 90016\nassert f(1) == expected(1)',
  ],
)
def test_a_program_is_not_shown_what_is_expected(judge, test):
  assert judge(PEEKS, test).tests[0].status == 'failed'
  right = """
def f(x, *_): return (x[0] if isinstance(x, list) else x) + 90016
class Box:
  def __init__(self, x): self.value = f(x)"""
  assert judge(right, test).passed


def test_functions_of_a_test_reach_a_program_that_needs_them(judge):
  code = 'def f(g, x): return g(x)'
  test = """
def factor(): return 2
def double(x): return x * factor()
assert f(double, 3) == 6"""
  assert judge(code, test).passed
