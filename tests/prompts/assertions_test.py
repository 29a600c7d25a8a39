"""The check of assertions that a model wrote."""

from __future__ import annotations

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptrl_jax.execution import names, split
from promptrl_jax.prompts.assertions import (
  BUILTINS,
  MAX_LENGTH,
  InvalidTestError,
  normalise,
)

USABLE = [
  'assert f(1) == 2',
  'assert 2 == f(1)',
  "assert f('a b', k=[1, (2, {3: None})]) is None",
  'assert f(1)',
  'assert not f(1)',
  'assert f(1) and f(2) == -3',
  'assert 0 < f(5) <= 10',
  'assert f(3) in [1, 2]',
  'assert sorted(f([3, 1]), reverse=True) == [3, 1]',
  'assert set(f([1, 1])) == {1}',
  'assert abs(f(1.5) - 2.25) < 1e-09',
  'assert math.isclose(f(1), math.pi, rel_tol=1e-09)',
  'assert round(f(2), 2) == 1.41',
  'assert isinstance(f(1), int)',
  'assert f(2)[0][1:] == [2]',
  'assert f(100) == 2 ** 100',
  'assert f(1) == 10 ** 9 + 7',
  'assert f(3) == [0] * 3',
  'assert f(3) == list(range(3))',
  'assert f([x * x for x in range(10 ** 5)]) == 1',
  'assert f(lambda x: x + 1, 2) == 3',
  "assert f('a'.upper()) == 'A'",
  'assert f(f(1)) == 1',
]

# (text, what the message names)
REFUSED = [
  ('f(1) == 2', 'assert'),
  ('', 'assert'),
  ('assert f(1) == 2; assert f(2) == 3', 'assert'),
  ('import os\nassert f(1) == 2', 'assert'),
  ('assert f(1) ==', 'parse'),
  ('assert f(1) == 2\0', 'parse'),
  ('assert 1 == 1', 'does not call f'),
  ('assert True', 'does not call f'),
  ('assert f', 'does not call f'),
  ('assert g(1) == 2', 'does not call f'),
  ('assert f(1) == 2 or True', 'does not call f'),
  ("assert (f(1) == 2, 'always true')", 'container'),
  ('assert f(x) == 2', "'x'"),
  ('assert g(f(1)) == 2', "'g'"),
  ('assert f == f(1)', "'f'"),
  ("assert f(__import__('os').getcwd())", '__import__'),
  ("assert f(1) == eval('2')", "'eval'"),
  ("assert f(exec('g = 1')) == 2", "'exec'"),
  ("assert f(open('x')) == 2", "'open'"),
  ('assert f(globals()) == 2', "'globals'"),
  ('assert f(().__class__) == 2', '__class__'),
  ("assert f('{0.__class__}'.format(1)) == 2", 'format'),
  ('assert f([__x for __x in range(3)]) == 2', '__x'),
  ('assert f(1).__class__ == int', 'Attribute'),
  ('assert f([f for f in [1]]) == 2', 'another meaning'),
  ('assert f(lambda f: 1) == 2', 'another meaning'),
  ('assert f(x := 1) == 2', 'NamedExpr'),
  ('assert f((yield 1)) == 2', 'Yield'),
  ('assert f(1) == (lambda: 2)()', 'Lambda'),
  ('assert all(f(i) == i for i in range(9))', 'GeneratorExp'),
  ('assert f(1) == 10 ** 10 ** 10', 'large'),
  ('assert 2 ** f(1) == 2', 'large'),
  ('assert f(1) == 1 << 10 ** 9', 'large'),
  ("assert '%999999999d' % f(1) == ''", 'large'),
  ('assert f(1) == [0] * 10 ** 9', 'large'),
  ('assert f(1) == [[0] * 9999] * 9999', 'large'),
  ('assert f(1) * [0] == []', 'large'),
  ('assert sum(range(10 ** 12)) == f(1)', 'range'),
  ('assert sum(range(f(1))) == 1', 'range'),
  ('assert round(f(1), -10 ** 9) == 0', 'round'),
  ('assert round(ndigits=-10 ** 9, number=f(1)) == 0', 'round'),
  ("assert dict(**{'a': f(1)}) == 1", 'unpacks'),
  ("assert f(1) == '" + 'x' * MAX_LENGTH + "'", str(MAX_LENGTH)),
  ('assert f(1) == ' + '-' * 900 + '1', 'parse'),
]


@pytest.mark.parametrize('test', USABLE)
def test_a_usable_test_is_its_own_normal_form_but_for_brackets(test):
  normal = normalise(test, 'f')
  assert ast.dump(ast.parse(normal)) == ast.dump(ast.parse(test))
  assert normalise(normal, 'f') == normal


@pytest.mark.parametrize('test', USABLE)
def test_the_judge_can_split_what_is_let_through(test):
  plan = split.split(normalise(test, 'f'), '', 'f')
  assert all(call.root == 'f' for call in plan.calls)
  assert plan.calls


@pytest.mark.parametrize(('test', 'named'), REFUSED)
def test_the_message_names_what_is_wrong(test, named):
  with pytest.raises(InvalidTestError) as error:
    normalise(test, 'f')
  assert named in str(error.value)
  assert len(str(error.value)) < 200


def test_the_normal_form_is_that_of_the_syntax_tree():
  written = [
    "assert f('a',  1)==2",
    'assert (f("a", 1)) == (2)  # why',
    "  assert f('a', 1) == 2, 'message'\n",
    "assert(\n  f('a',\n    1) == 2)",
  ]
  assert {normalise(test, 'f') for test in written} == {"assert f('a', 1) == 2"}


def test_a_function_may_bear_the_name_of_a_builtin():
  assert normalise('assert sum([1, 2]) == 3', 'sum')
  with pytest.raises(InvalidTestError, match="'sum'"):
    normalise('assert sum([1]) == max(sum, 1)', 'sum')


def test_the_judge_offers_every_builtin_that_is_let_through():
  assert names.offered().keys() >= BUILTINS


@given(st.text(max_size=60))
def test_any_text_is_taken_or_refused(text):
  try:
    normal = normalise(f'assert f({text}', 'f')
  except InvalidTestError:
    return
  assert len(ast.parse(normal).body) == 1
