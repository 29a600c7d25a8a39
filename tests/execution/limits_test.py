from __future__ import annotations

import dataclasses
import math
import os
import subprocess
import sys

import pytest

from promptrl_jax.execution import ExecutionPool, Limits, Program


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


def test_a_thread_that_waits_for_a_processor_is_not_idle():
  code = """
import threading, time
def work():
  while time.process_time() < 0.4: pass
def f(x):
  thread = threading.Thread(target=work)
  thread.start()
  thread.join()
  return x"""
  cores = os.sched_getaffinity(0)
  os.sched_setaffinity(0, {min(cores)})
  busy = [sys.executable, '-c', 'while True: pass']
  others = [subprocess.Popen(busy, start_new_session=True) for _ in range(4)]
  try:
    with ExecutionPool(workers=1, limits=Limits(idle_s=0.5)) as pool:
      (result,) = pool.run([Program(code, ('assert f(1) == 1',))])
  finally:
    os.sched_setaffinity(0, cores)
    for other in others:
      other.kill()
      other.wait()
  assert result.passed, result


def test_threads_are_counted_where_the_kernel_does_not(judge):
  code = """
import threading, time
threading.stack_size(2**16)
def f(n):
  for _ in range(n): threading.Thread(target=time.sleep, args=(0.2,)).start()
  return n"""
  tests = ('assert f(3) == 3', 'assert f(30) == 30')
  result = judge(code, *tests, limits=Limits(processes=20))
  assert result.tests[0].status == 'passed', result
  assert result.tests[1].status in ('crash', 'error'), result
