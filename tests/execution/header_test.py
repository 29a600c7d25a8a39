"""The header of standard imports before a program."""

from __future__ import annotations

import pytest

from promptrl_jax.execution import Program
from promptrl_jax.execution.header import (
  IMPORT_HEADER,
  ImportHeaderPool,
  with_import_header,
)

USES_MATH = 'def f(x):\n  return math.sqrt(x)'
TEST = 'assert f(9) == 3.0'


def test_a_missing_import_is_forgiven_only_with_the_header(pool):
  program = Program(USES_MATH, (TEST,))
  (without,) = pool.run([program])
  (with_header,) = ImportHeaderPool(pool).run([program])
  assert (without.status, without.tests[0].error_type) == ('error', 'NameError')
  assert with_header.passed
  (later,) = ImportHeaderPool(pool).submit([program])
  assert later.result().passed


@pytest.mark.parametrize(
  'name',
  ['math', 're', 'itertools', 'Counter', 'defaultdict', 'List', 'Optional'],
)
def test_the_header_offers(judge, name):
  code = with_import_header(f'def f():\n  return {name} is not None')
  assert judge(code, 'assert f()').passed


def test_what_the_program_defines_replaces_the_header(judge):
  code = 'def copy(x):\n  return x + 1\n\n\ndef f(x):\n  return copy(x)'
  assert judge(with_import_header(code), 'assert f(1) == 2').passed


@pytest.mark.parametrize(
  'future',
  [
    'from __future__ import annotations',
    '"""Words."""\nfrom __future__ import annotations\n',
    'from __future__ import (\n  annotations,\n)  # why\n\n',
    'from __future__ import division\nfrom __future__ import annotations\n',
  ],
)
def test_future_imports_stay_in_front(judge, future):
  code = f'{future}\n{USES_MATH.replace("x)", "x: Nowhere)", 1)}'
  assert judge(with_import_header(code), TEST).passed
  assert with_import_header(code).replace(IMPORT_HEADER, '') == code


def test_a_program_of_a_future_import_alone_gets_a_line_of_its_own():
  code = 'from __future__ import annotations'
  assert with_import_header(code) == f'{code}\n{IMPORT_HEADER}'


def test_a_blank_program_stays_blank(judge):
  assert with_import_header(' \n') == ' \n'
  assert judge(with_import_header(''), TEST).status == 'no_code'


def test_a_syntax_error_stays_one(judge):
  assert judge(with_import_header('def f(x'), TEST).status == 'syntax_error'


def test_verdicts_come_in_order_and_nothing_else_changes(pool):
  programs = [
    Program('def f(x):\n  return y', (TEST, 'assert f(0) == 3.0'), 'y = 3.0'),
    Program(USES_MATH, (TEST,), entry_point='f'),
    Program('', (TEST,)),
  ]
  results = ImportHeaderPool(pool).run(programs)
  assert [r.status for r in results] == ['passed', 'passed', 'no_code']
