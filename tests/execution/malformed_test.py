"""The pool gives a verdict on every job, however malformed it is."""

from __future__ import annotations

import collections

import pytest

from promptrl_jax.execution import Program
from promptrl_jax.execution.memo import MemoPool

IDENTITY = 'def f(x):\n  return x\n'
TESTS = ('assert f(1) == 1', 'assert f(2) == 2')
SURROGATE = '"\ud800"'


class Text(str):
  """A string that cannot be hashed."""

  __hash__ = None  # type: ignore[assignment]


class Loud:
  """Raises an exception wherever it is printed or hashed."""

  def __repr__(self):
    raise ValueError('no')

  __str__ = __hash__ = __repr__  # type: ignore[assignment]

  def __eq__(self, other):
    raise ValueError('no')


@pytest.mark.parametrize(
  ('fields', 'message'),
  [
    ({'code': None}, 'code must be a str, got NoneType'),
    ({'code': IDENTITY.encode()}, 'code must be a str, got bytes'),
    ({'code': [[]]}, 'code must be a str, got list'),
    ({'code': Loud()}, 'code must be a str, got Loud'),
    ({'tests': TESTS[0]}, 'tests must be a sequence of str, got str'),
    ({'tests': None}, 'tests must be a sequence of str, got NoneType'),
    ({'tests': {TESTS[0]: 1}}, 'tests must be a sequence of str, got dict'),
    ({'tests': [TESTS[0], {}]}, 'test 2 must be a str, got dict'),
    ({'tests': range(10**15)}, 'test 1 must be a str, got int'),
    ({'tests': [f'assert f({SURROGATE})']}, 'test 1 must be text that UTF-8'),
    ({'tests': ()}, 'there are no tests'),
    ({'tests': []}, 'there are no tests'),
    ({'setup': None}, 'setup must be a str, got NoneType'),
    ({'setup': f'x = {SURROGATE}'}, 'setup must be text that UTF-8'),
    ({'entry_point': ['f']}, 'entry_point must be a str, got list'),
    ({'entry_point': SURROGATE}, 'entry_point must be text that UTF-8'),
    ({'limits': 3.0}, 'limits must be Limits or None, got float'),
    ({'limits': {}}, 'limits must be Limits or None, got dict'),
  ],
)
def test_a_malformed_job_is_refused_with_what_was_expected(
  pool, fields, message
):
  program = Program(**{'code': IDENTITY, 'tests': TESTS, **fields})
  for result in [*pool.run([program]), *MemoPool(pool).run([program])]:
    assert (result.status, result.score) == ('refused', None)
    assert result.message.startswith(message)
    assert len(result.message) <= 200
    assert all(test.status == 'not_run' for test in result.tests)


def test_a_malformed_program_is_another_than_a_blank_one(pool):
  blank, none, number = (Program(code, TESTS) for code in ('', None, 1))
  assert len({blank, none, number}) == 3
  results = pool.run([blank, none, number, blank])
  assert [r.status for r in results] == [
    'no_code',
    'refused',
    'refused',
    'no_code',
  ]
  assert [len(r.tests) for r in results] == [2, 2, 2, 2]


@pytest.mark.parametrize('junk', [None, 'def f(x): pass', [[]], {}, Loud()])
def test_what_is_no_program_is_refused_and_costs_no_other(pool, junk):
  right = Program(IDENTITY, TESTS)
  first, second, third = pool.run([right, junk, right])
  assert first.passed
  assert third is first
  assert (second.status, second.score) == ('refused', None)
  assert second.message == f'expected a Program, got {type(junk).__name__}'


@pytest.mark.parametrize('tests', [collections.UserList(TESTS), list(TESTS)])
def test_tests_may_be_any_sequence(pool, tests):
  program = Program(IDENTITY, tests)
  assert program == Program(IDENTITY, TESTS)
  assert pool.run([program])[0].passed


def test_a_string_that_cannot_be_hashed_is_a_string(pool):
  program = Program(Text(IDENTITY), [Text(test) for test in TESTS])
  assert pool.run([program, program])[1].passed


@pytest.mark.parametrize(
  ('code', 'statuses'),
  [
    (f'{IDENTITY}\0', {'syntax_error'}),
    ('\0', {'syntax_error'}),
    (f'{IDENTITY}# {SURROGATE}', {'syntax_error'}),
    (f'x = {"(" * 50_000}{")" * 50_000}', {'syntax_error'}),
    (f'x = {"[" * 50_000}', {'syntax_error'}),
    # The parser reports a lack of stack as a lack of memory.
    (f'x = {"-" * 50_000}1', {'syntax_error', 'memory'}),
    (f'x = {"1+" * 50_000}1', {'syntax_error'}),
    (f'x = a{".b" * 50_000}', {'syntax_error'}),
    ('def f(x):\n\tif x:\n\t    return x\n        return x', {'syntax_error'}),
    (f'{IDENTITY}#{"x" * 5_000_000}', {'passed'}),
    (IDENTITY + 'y = 1\n' * 800_000, {'timeout', 'memory'}),
    (IDENTITY.replace('\n', '\r\n'), {'passed'}),
    (IDENTITY.replace('\n', '\r'), {'passed'}),
    ('def f(x):\n\tif x:\n\t\treturn x', {'passed'}),
    ('\n\t \r\n', {'no_code'}),
    ('\f', {'no_code'}),
    ('#', {'error'}),
    ('f = 1', {'error'}),
  ],
)
def test_odd_source_gets_the_verdict_it_deserves(judge, code, statuses):
  result = judge(code, *TESTS)
  assert result.status in statuses
  assert result.score == (1.0 if result.passed else 0.0)
  assert len(result.tests) == 2


@pytest.mark.parametrize(
  ('value', 'status'),
  [
    ('{frozenset(): [{1}, {}]}', 'failed'),
    ('[[]] * 1000', 'failed'),
    ('10 ** 10 ** 5', 'failed'),
    ('chr(0xd800) * 10 ** 5', 'failed'),
    ('type("X", (), {"__hash__": None})()', 'invalid'),
    ('b"x" * 10 ** 6', 'invalid'),
    ('list(range(3 * 10 ** 5))', 'invalid'),
  ],
)
def test_odd_results_get_the_verdict_they_deserve(judge, value, status):
  result = judge(f'def f(x): return {value}', TESTS[0])
  assert result.status == status
  assert result.tests[0].message.isprintable()


@pytest.mark.parametrize(
  'test',
  [
    '',
    ' \n',
    'f(1) == 1',
    'x = f(1)',
    'assert',
    'assert f(1) == 1\0',
    'assert f(1) == ' + '(' * 50_000,
    'assert f(1) == ' + '-' * 50_000 + '1',
    'assert f(1) == ' + '1+' * 50_000 + '1',
  ],
)
def test_a_test_that_asserts_nothing_is_invalid(judge, test):
  result = judge(IDENTITY, test, TESTS[0])
  assert [t.status for t in result.tests] == ['invalid', 'passed']
  assert result.tests[0].message
