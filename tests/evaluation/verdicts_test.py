"""What became of programs, counted from a trace."""

from __future__ import annotations

import pytest

from promptrl_jax.evaluation import verdicts


def row(status, error_type='', *, code='x', strategy='ppo', budget=2):
  return {
    'strategy': strategy,
    'protocol': 'visible1',
    'budget': budget,
    'code': code,
    'visible_passed': status == 'passed',
    'status': status,
    'error_type': error_type,
  }


@pytest.mark.parametrize(
  ('one', 'expected'),
  [
    (row('passed'), 'no failure'),
    (row('failed'), 'wrong value'),
    (row('error', 'KeyError'), 'KeyError'),
    (row('syntax_error', 'SyntaxError'), 'SyntaxError'),
    (row('timeout'), 'timeout'),
    (row(None), 'no visible test'),
    (row('not_run', code=' '), 'no program'),
    (row('no_code', code=''), 'no program'),
  ],
)
def test_the_class_of_a_failure(one, expected):
  assert verdicts.failure(one) == expected


def test_programs_are_counted_by_strategy_and_budget():
  rows = [
    *[row('failed')] * 3,
    *[row('error', 'KeyError')] * 2,
    row('passed'),
    row('', code=None),  # asked for no program
    row('passed', budget=4),
    row('error', 'KeyError', strategy='direct', budget=1),
  ]
  found = verdicts.Verdicts(rows).rows()
  assert [(r['strategy'], r['budget'], r['verdicts']) for r in found] == [
    ('ppo', 2, {'wrong value': 3, 'KeyError': 2, 'no failure': 1}),
    ('ppo', 4, {'no failure': 1}),
    ('direct', 1, {'KeyError': 1}),
  ]
  assert sum(r['programs'] for r in found) == 8


def test_a_table_has_the_largest_budget_of_each_strategy_and_what_is_frequent():
  names = ['A', 'B', 'C', 'D', 'E', 'F']
  many = [
    row('error', n)
    for n, k in zip(names, range(9, 3, -1), strict=True)
    for _ in range(k)
  ]
  found = verdicts.Verdicts(
    [row('passed', budget=1), row('passed'), *many]
  ).rows()
  (line,) = [
    x for x in verdicts.to_markdown(found).splitlines() if x.startswith('| ppo')
  ]
  assert line == (
    '| ppo | 2 | 40 | 2.5 | A 22.5, B 20.0, C 17.5, D 15.0, others 22.5 |'
  )
  assert verdicts.to_markdown([]) == ''
