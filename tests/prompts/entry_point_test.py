from __future__ import annotations

import pytest

from promptrl_jax.prompts.entry_point import entry_point


@pytest.mark.parametrize(
  ('test', 'name'),
  [
    ('assert f([1, 2]) == 3', 'f'),
    ('assert set(f(1)) == set([1])', 'f'),
    ('assert math.isclose(f(1), 2.5, rel_tol=0.1)', 'f'),
    ('import math\nassert math.isclose(f(1), 2.5)', 'f'),
    ('from math import isclose\nassert isclose(f(1), 2.5)', 'f'),
    ('assert sorted(list(f(1))) == [1]', 'f'),
    ('assert f(g(1)) == 2', 'f'),
    ('assert 4 == f(1)', 'f'),
    ('assert not f(1), "message"', 'f'),
    ('assert max_chain([Pair(5, 24), Pair(39, 60)], 2) == 2', 'max_chain'),
    ('x = [1]\nassert f(x) == 2', 'f'),
    ('def near(a, b):\n  return abs(a - b) < 1\nassert near(f(1), 2)', 'f'),
    ('assert all(f(x) == y for x, y in [(1, 2)])', 'f'),
    ('assert f(1) == 2\r\n', 'f'),
    ('  assert f(1) == 2', 'f'),
    ('assert Solution().two_sum([1], 1) == [0]', 'Solution'),
  ],
)
def test_finds_the_outermost_call_that_is_the_programs(test, name):
  assert entry_point([test]) == name


def test_a_builtin_is_taken_only_when_nothing_else_is_called():
  assert entry_point(['assert sum(10, 15) == 6']) == 'sum'
  assert entry_point(['assert int(f("3")) == 3']) == 'f'


def test_the_name_that_most_tests_call_wins():
  tests = ['assert h(f(1)) == 1', 'assert f(2) == 2', 'assert f(3) == 3']
  assert entry_point(tests) == 'f'


def test_the_first_of_equally_frequent_names_wins():
  assert entry_point(['assert f(1) == g(1)', 'assert f(2) == g(2)']) == 'f'


def test_says_which_tests_call_nothing():
  with pytest.raises(ValueError, match='x == 1'):
    entry_point(['assert x == 1'])
  with pytest.raises(ValueError, match='does not parse'):
    entry_point(['assert f('])
