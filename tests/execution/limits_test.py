from __future__ import annotations

import dataclasses
import math

import pytest

from promptrl_jax.execution import Limits


@pytest.mark.parametrize('field', dataclasses.fields(Limits))
@pytest.mark.parametrize('value', [0, -1, math.inf, math.nan])
def test_a_limit_that_makes_no_sense_is_named(field, value):
  with pytest.raises(ValueError, match=f'{field.name} must be '):
    Limits(**{field.name: value})


def test_the_kernel_holds_a_program_to_its_limits(judge):
  code = """
import resource as r
def f():
  names = (r.RLIMIT_FSIZE, r.RLIMIT_NOFILE, r.RLIMIT_CORE)
  return [r.getrlimit(name) for name in names]
def raise_memory():
  soft, hard = r.getrlimit(r.RLIMIT_AS)
  r.setrlimit(r.RLIMIT_AS, (2 * hard, 2 * hard))"""
  result = judge(
    code,
    'assert f() == [(3 * 2**20, 3 * 2**20), (9, 9), (0, 0)]',
    'assert raise_memory() is None',
    limits=Limits(file_mb=3, open_files=9),
  )
  assert [t.status for t in result.tests] == ['passed', 'error'], result
  assert result.tests[1].error_type in ('ValueError', 'PermissionError')


def test_a_file_that_grows_too_large_is_an_error(judge):
  code = """
def f(n):
  with open('x', 'wb') as file: file.write(bytes(n))
  return n"""
  result = judge(code, 'assert f(10**6) == 10**6', 'assert f(10**7) == 10**7')
  assert result.tests[0].status == 'passed'
  assert result.tests[1].error_type == 'OSError'
