from __future__ import annotations

import pytest

from promptrl_jax.execution import ExecutionPool, Limits, Program

IDENTITY = 'def f(x):\n  return x'


def statuses(result):
  return [test.status for test in result.tests]


def test_a_right_program_passes_and_reports_its_time(judge):
  result = judge(IDENTITY, 'assert f(1) == 1', 'assert f([2]) == [2]')
  assert result.passed
  assert result.status == 'passed'
  assert result.score == 1.0
  assert statuses(result) == ['passed', 'passed']
  assert 0 < result.cpu_s < 1
  assert 0 < result.wall_s < 5


def test_score_is_the_share_of_tests_that_pass(judge):
  tests = [f'assert f({i}) == {i}' for i in (1, 2, 3)]
  result = judge(IDENTITY, 'assert f(0) == 1', *tests)
  assert result.score == 0.75
  assert result.status == 'failed'
  assert not result.passed


def test_a_failure_names_call_actual_and_expected_value(judge):
  code = 'def f(x):\n  return 3'
  result = judge(code, 'assert f([1, 2]) == 4', 'assert 4 == f((1,))')
  assert result.tests[0].message == 'f([1, 2]) returned 3, expected 4'
  assert result.tests[1].message == 'f((1,)) returned 3, expected 4'


def test_an_error_names_the_exception(judge):
  result = judge('def f(x):\n  return x["key"]', 'assert f({}) == 1')
  (test,) = result.tests
  assert (test.status, test.error_type) == ('error', 'KeyError')
  assert test.message == "'key'"


def test_messages_are_bounded(judge):
  code = (
    'def f(x):\n  if x: raise ValueError("y" * 10**5)\n  return "x" * 10**5'
  )
  long = 'assert f(0) == "' + 'z' * 1000 + '"'
  result = judge(code, long, 'assert f(1) == 1')
  assert statuses(result) == ['failed', 'error']
  assert all(0 < len(test.message) <= 200 for test in result.tests)


def test_an_int_too_long_to_print_can_be_compared(judge):
  code = 'def f(x):\n  return 10 ** x'
  tests = ('assert f(9000) == 10 ** 9000', 'assert f(9000) == 1')
  assert statuses(judge(code, *tests)) == ['passed', 'failed']


def test_a_timeout_ends_only_its_own_test(judge):
  code = 'def f(x):\n  while x == 2: pass\n  return x'
  tests = [f'assert f({i}) == {i}' for i in (1, 2, 3)]
  result = judge(code, *tests)
  assert statuses(result) == ['passed', 'timeout', 'passed']
  assert result.status == 'timeout'
  assert result.wall_s < 10


def test_after_two_timeouts_the_rest_is_not_run(judge):
  code = 'import time\ndef f(x):\n  time.sleep(100)'
  result = judge(code, *[f'assert f({i}) == {i}' for i in range(4)])
  assert statuses(result) == ['timeout', 'timeout', 'not_run', 'not_run']
  assert 'idle' in result.tests[0].message


def test_tests_share_a_bounded_total_of_cpu_time(judge):
  code = """
import time
def f(x):
  start = time.process_time()
  while time.process_time() < start + 0.2: pass
  return x"""
  result = judge(code, *[f'assert f({i}) == {i}' for i in range(5)])
  assert statuses(result)[:2] == ['passed', 'passed']
  assert statuses(result)[2] == 'timeout'
  assert result.cpu_s < 2


def test_the_limits_of_a_program_replace_those_of_the_pool(pool):
  code = 'def f(x):\n  for _ in range(10 ** 7): pass\n  return x'
  test = ('assert f(1) == 1',)
  short = Program(code, test, limits=Limits(cpu_s=0.02))
  long = Program(code, test, limits=Limits(cpu_s=20))
  assert [r.status for r in pool.run([short, long])] == ['timeout', 'passed']


def test_an_endless_program_times_out_while_loading(judge):
  result = judge('while True: pass', 'assert f(1) == 1', 'assert f(2) == 2')
  assert statuses(result) == ['timeout', 'timeout']
  assert result.cpu_s < 1


def test_waiting_for_input_ends_at_once(judge):
  result = judge('def f(x):\n  return input()', 'assert f(1) == 1')
  assert result.tests[0].error_type == 'EOFError'


@pytest.mark.parametrize(
  'body',
  ['return len([0] * 10 ** 10)', 'x = []\n  while True: x.append("y" * 10**6)'],
)
def test_memory_is_limited_and_later_tests_still_run(judge, body):
  code = f'def f(x):\n  if x: return x\n  {body}'
  limits = Limits(cpu_s=20, memory_mb=128)
  result = judge(code, 'assert f(0) == 1', 'assert f(1) == 1', limits=limits)
  assert statuses(result) == ['memory', 'passed']
  assert result.tests[0].error_type == 'MemoryError'


def test_memory_is_limited_while_loading(judge):
  code = 'x = []\nwhile True: x.append("y" * 10**6)'
  limits = Limits(cpu_s=20, memory_mb=128)
  assert judge(code, 'assert f(0) == 1', limits=limits).status == 'memory'


@pytest.mark.parametrize(
  'code', ['def f(x:', 'f = \0', 'def f(x): return "\ud800\n', '(' * 5000]
)
def test_a_program_that_does_not_compile_is_a_syntax_error(judge, code):
  result = judge(code, 'assert f(1) == 1', 'assert f(2) == 2')
  assert result.status == 'syntax_error'
  assert statuses(result) == ['error', 'error']
  assert result.score == 0.0


def test_an_exception_while_loading_covers_all_tests(judge):
  code = 'def f(x):\n  return x\nraise OSError("no")'
  result = judge(code, 'assert f(1) == 1', 'assert f(2) == 2')
  assert [t.error_type for t in result.tests] == ['OSError', 'OSError']


@pytest.mark.parametrize('code', ['', ' \n\t'])
def test_blank_code_is_no_code(judge, code):
  result = judge(code, 'assert f(1) == 1')
  assert (result.status, result.score) == ('no_code', 0.0)
  assert statuses(result) == ['not_run']


def test_a_program_without_tests_is_refused(judge):
  result = judge(IDENTITY)
  assert (result.status, result.score) == ('refused', None)
  assert not result.passed


@pytest.mark.parametrize(
  ('value', 'what'),
  [
    ('object()', 'object'),
    ('(lambda: 1)', 'function'),
    ('[1, [object()]]', 'object'),
    ('(i for i in [1])', 'iterator'),
    ('list(range(300_000))', 'elements'),
    ('"x" * 2_000_000', 'KiB'),
  ],
)
def test_what_is_not_plain_data_is_invalid(judge, value, what):
  result = judge(f'def f(x):\n  return {value}', 'assert f(1) == [1]')
  assert statuses(result) == ['invalid']
  assert what in result.tests[0].message


def test_an_endless_iterator_is_invalid(judge):
  code = 'import itertools\ndef f(x):\n  return itertools.count()'
  assert judge(code, 'assert f(1) == 1').status == 'invalid'


def test_a_test_that_cannot_be_judged_is_invalid_and_costs_no_other(judge):
  tests = ('assert 1 == 1', 'assert f(1) == 1', 'assert f(1) == LIMIT')
  result = judge(f'LIMIT = 1\n{IDENTITY}', *tests)
  assert statuses(result) == ['invalid', 'passed', 'invalid']
  assert 'calls no function' in result.tests[0].message
  assert 'LIMIT' in result.tests[2].message


def test_setup_runs_after_the_program(judge):
  code = """
class Node:
  def __init__(self, value):
    self.value, self.next = value, None
def total(node):
  return node.value + total(node.next) if node else 0"""
  setup = 'root = Node(1)\r\nroot.next = Node(2)'
  assert judge(code, 'assert total(root) == 3', setup=setup).passed
  broken = judge(code, 'assert total(root) == 3', setup='root = Leaf(1)')
  assert broken.tests[0].error_type == 'NameError'
  assert 'setup' in broken.tests[0].message


def test_a_crash_ends_only_its_own_test(judge):
  code = (
    'import os, signal\ndef f(x):\n'
    '  if x == 2: os.kill(os.getpid(), signal.SIGSEGV)\n  return x'
  )
  result = judge(code, *[f'assert f({i}) == {i}' for i in (1, 2, 3)])
  assert statuses(result) == ['passed', 'crash', 'passed']
  assert 'Segmentation fault' in result.tests[1].message


def test_tests_of_a_program_see_the_same_state_and_programs_do_not(judge):
  code = 'n = 0\ndef f():\n  global n\n  n += 1\n  return n'
  for _ in range(2):
    assert judge(code, 'assert f() == 1', 'assert f() == 2').passed


def test_a_program_has_its_own_folder_which_is_gone_afterwards(judge):
  code = """
import os
def f(name):
  with open(name, 'w') as file: file.write('x')
  return os.listdir('.')"""
  assert judge(code, "assert f('a') == ['a']").passed
  assert judge(code, "assert f('b') == ['b']").passed


def test_a_program_that_nests_folders_costs_nobody_anything(judge):
  code = """
import os
def f(depth):
  for _ in range(depth):
    os.mkdir('deep')
    os.chdir('deep')
  return depth"""
  assert judge(code, 'assert f(1000) == 1000').passed
  assert judge(IDENTITY, 'assert f(1) == 1').passed


def test_the_environment_is_clean_and_the_same_for_every_program(pool):
  code = """
import os, random, sys
fds = [fd for fd in range(256) if os.path.exists(f'/proc/self/fd/{fd}')]
values = sorted(os.environ), fds, hash('x'), random.random(), __name__
def f(i): return values[i]"""
  # One value per test, because messages show little of a value.
  tests = tuple(f'assert f({i}) is None' for i in range(5))
  programs = [Program(f'{code}\n#{i}', tests) for i in range(4)]
  messages = {tuple(t.message for t in r.tests) for r in pool.run(programs)}
  assert len(messages) == 1
  environment, *_, name = messages.pop()
  assert 'PYTHONHASHSEED' in environment
  assert "'candidate'" in name


def test_results_come_in_input_order(pool):
  slow = 'import time\ntime.sleep(0.1)\n'
  programs = [
    Program((slow if i % 5 == 0 else '') + f'def f(): return {i}', (test,))
    for i in range(20)
    for test in [f'assert f() == {i % 3}']
  ]
  expected = ['passed' if i < 3 else 'failed' for i in range(20)]
  assert [r.status for r in pool.run(programs)] == expected


def test_equal_programs_in_a_batch_are_run_once(pool):
  code = 'import time\ntime.sleep(0.2)\ndef f(): return 1'
  program = Program(code, ('assert f() == 1',))
  results = pool.run([program, Program(IDENTITY, ('assert f(1) == 1',))] * 50)
  assert all(result.passed for result in results)
  assert len({id(result) for result in results}) == 2


def test_an_empty_batch_is_fine(pool):
  assert pool.run([]) == []


def test_bad_settings_are_named():
  with pytest.raises(ValueError, match='workers must be at least 1, got 0'):
    ExecutionPool(workers=0)
  with pytest.raises(ValueError, match='cpu_s must be positive'):
    Limits(cpu_s=0)
