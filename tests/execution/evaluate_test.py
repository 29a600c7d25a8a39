"""Values and output of expressions after programs that may be hostile."""

from __future__ import annotations

import ast
import pathlib

import pytest

from promptrl_jax.execution import (
  Call,
  CallResult,
  ExecutionPool,
  ExpressionResult,
  Limits,
  Program,
)
from promptrl_jax.execution.header import ImportHeaderPool
from promptrl_jax.execution.memo import MemoPool

ROOT = pathlib.Path(__file__).parents[2]
IDENTITY = 'def f(x): return x'

# Writes to the socket of the judge by raw system calls.
SOCKET = """
import json, os, struct, time
def send(message):
  body = json.dumps(message).encode()
  os.write(3, struct.pack('>I', len(body)) + body)
"""


@pytest.fixture
def evaluate(pool):
  """Evaluates expressions after one program."""

  def run(code: str, *expressions: str, **kwargs) -> CallResult:
    return pool.evaluate([Call(code, expressions, **kwargs)])[0]

  return run


def statuses(result: CallResult) -> list[str]:
  return [expression.status for expression in result.expressions]


def values(result: CallResult) -> list[str | None]:
  return [expression.value for expression in result.expressions]


@pytest.mark.parametrize(
  'value',
  [
    *('None', 'True', '0', '-7', '18446744073709551616', '0.5', '-0.0'),
    *('1e+300', 'nan', 'inf', '(1+2j)', "'text'", "'é\\n\\ud800'", "b'\\x00a'"),
    *('[1, [2, []]]', '(1,)', '()', '{1: [2]}', '{}', 'set()', '{3}'),
    *('range(0, 5)', "bytearray(b'a')", 'frozenset({1})'),
  ],
)
def test_a_value_is_its_repr(evaluate, value):
  result = evaluate(f'nan, inf = float("nan"), float("inf")\n{IDENTITY}', value)
  assert (result.status, values(result)) == ('ok', [value])
  assert not result.expressions[0].value_is_cut


@pytest.mark.parametrize(
  ('expression', 'value'),
  [
    ('decimal.Decimal("0.10")', "Decimal('0.10')"),
    ('fractions.Fraction(2, 4)', 'Fraction(1, 2)'),
    ('datetime.date(2020, 1, 2)', 'datetime.date(2020, 1, 2)'),
    ('collections.deque([1])', 'deque([1])'),
    ('collections.Counter("aab")', "{'a': 2, 'b': 1}"),
    ('collections.namedtuple("P", "x y")(1, 2)', '(1, 2)'),
    ('map(abs, [-1, 2])', 'an iterator over [1, 2]'),
    ('{"a": 1}.keys()', "an iterator over ['a']"),
    ('  f(1)\n', '1'),
    ('[f(x) for x in range(3)]', '[0, 1, 2]'),
  ],
)
def test_values_of_the_standard_library_come_out_plain(
  evaluate, expression, value
):
  code = f'import collections, datetime, decimal, fractions\n{IDENTITY}'
  assert values(evaluate(code, expression)) == [value]


def test_expressions_are_evaluated_in_order_in_one_process(evaluate):
  code = 'items = []\ndef push(x):\n  items.append(x)\n  return len(items)'
  result = evaluate(code, 'push("a")', 'push("b")', 'items', '(y := 5)', 'y')
  assert values(result) == ['1', '2', "['a', 'b']", '5', '5']


def test_setup_runs_between_program_and_expressions(evaluate):
  result = evaluate('def f(): return y', 'f()', setup='y = 6 * 7')
  assert values(result) == ['42']
  failing = evaluate(IDENTITY, 'f(1)', setup='1 / 0')
  assert statuses(failing) == ['error']
  assert failing.message == 'in the setup: division by zero'


def test_a_blank_program_can_be_asked_too(evaluate):
  assert values(evaluate('', '6 * 7')) == ['42']


def test_an_entry_point_has_to_be_defined_by_the_program(evaluate):
  without = evaluate('', 'sum([1, 2])', entry_point='sum')
  assert without.expressions[0].error_type == 'NameError'
  own = evaluate('def sum(x): return 9', 'sum([1, 2])', entry_point='sum')
  assert values(own) == ['9']


def test_output_is_reported_per_expression(evaluate):
  code = f"""
import sys
print('loading')
def say(x):
  print(x, end='')
  sys.stdout.buffer.write(b' raw')
  sys.stderr.write('not this')
  return x
{IDENTITY}"""
  result = evaluate(code, 'say("é")', 'f(1)', 'say(2)', 'say(3) / 0')
  assert result.output == 'loading\n'
  outputs = [expression.output for expression in result.expressions]
  assert outputs == ['é raw', '', '2 raw', '3 raw']
  assert statuses(result) == ['ok', 'ok', 'ok', 'error']


def test_output_of_a_program_that_fails_to_load_is_reported(evaluate):
  result = evaluate('print("so far")\n1 / 0', 'f(1)')
  assert (result.status, result.output) == ('error', 'so far\n')


def test_output_is_bounded(evaluate):
  result = evaluate(
    'def f(x):\n  for _ in range(10**4): print("x" * x)\n  return 1', 'f(100)'
  )
  (expression,) = result.expressions
  assert expression.value == '1'
  assert expression.output.startswith('x' * 100 + '\n')
  assert len(expression.output) == 10_000
  assert expression.output_is_cut
  assert not result.output_is_cut


def test_small_answers_still_leave_room_for_the_value(evaluate):
  limits = Limits(answer_kb=1)
  result = evaluate(
    'def f(x):\n  print("\\x01" * 10**5)\n  return x', 'f(1)', limits=limits
  )
  assert values(result) == ['1']
  assert result.expressions[0].output_is_cut


def test_a_long_value_is_cut_and_says_so(evaluate):
  (expression,) = evaluate(IDENTITY, 'f("x" * 10**5)').expressions
  assert expression.status == 'ok'
  assert expression.value == "'" + 'x' * 9_999
  assert expression.value_is_cut


@pytest.mark.parametrize(
  ('expression', 'message'),
  [
    ('f', 'returned an object of type function'),
    ('object()', 'returned an object of type object'),
    ('"x" * 2**21', 'returned data of more than 1024 KiB'),
    ('[0] * 300_000', 'returned more than 200000 elements'),
    ('{i: i for i in range(6000)}', 'returned a dict of more than 5000 keys'),
    ('f(10**5000)', 'returned an int of too many digits'),
    ('[{1: 10**5000}]', 'returned an int of too many digits'),
  ],
)
def test_what_is_not_plain_or_too_large_is_no_value(
  evaluate, expression, message
):
  result = evaluate(IDENTITY, expression, 'f(1)')
  assert statuses(result) == ['invalid', 'ok']
  assert result.expressions[0].message == f'{expression} {message}'
  assert result.expressions[0].value is None


def test_errors_name_class_and_text(evaluate):
  result = evaluate(IDENTITY, '1 / 0', 'nowhere', 'f(', 'x = 1', 'f(1)')
  errors = [(e.error_type, e.message) for e in result.expressions]
  assert errors[0] == ('ZeroDivisionError', 'division by zero')
  assert errors[1] == ('NameError', "name 'nowhere' is not defined")
  assert [kind for kind, _ in errors[2:4]] == ['SyntaxError', 'SyntaxError']
  assert statuses(result) == ['error'] * 4 + ['ok']
  assert result.status == 'error'


def test_a_program_that_does_not_compile_is_a_syntax_error(evaluate):
  result = evaluate('def f(', 'f(1)', 'f(2)')
  assert (result.status, statuses(result)) == ('syntax_error', ['error'] * 2)


def test_time_is_limited_per_expression(evaluate):
  code = """
import time
def spin():
  while True: pass
def nap(): time.sleep(100)
def f(x): return x"""
  result = evaluate(code, 'f(1)', 'spin()', 'f(2)', 'nap()', 'f(3)')
  expected = ['ok', 'timeout', 'ok', 'timeout', 'not_run']
  assert statuses(result) == expected
  assert result.status == 'timeout'
  assert result.wall_s < 5
  assert 0.25 <= result.cpu_s < 1


def test_own_limits_replace_those_of_the_pool(evaluate):
  spin = 'for _ in range(10**9): pass'
  result = evaluate(spin, '1', limits=Limits(cpu_s=0.1, wall_s=10.0))
  assert result.status == 'timeout'
  assert result.cpu_s < 0.24


def test_memory_is_limited_and_the_next_expression_has_all_of_it(evaluate):
  code = 'kept = []\ndef f(x):\n  kept.append(bytearray(x))\n  return len(kept)'
  # Touching so many pages takes a busy machine more than the pool's 0.25 s.
  patient = Limits(cpu_s=10.0, memory_mb=256)
  calls = 'f(1)', 'f(2**30)', 'f(100 * 2**20)'
  result = evaluate(code, *calls, limits=patient)
  assert statuses(result) == ['ok', 'memory', 'ok']
  assert values(result) == ['1', None, '1']  # A process of its own.


def test_a_crash_costs_no_other_expression(evaluate):
  code = 'import os\ndef die(): os._exit(0)\ndef f(x): return x'
  result = evaluate(code, 'f(1)', 'die()', 'f(2)')
  assert statuses(result) == ['ok', 'crash', 'ok']
  assert 'exit status 0' in result.expressions[1].message


FORGERIES = {
  'print': 'def f(x): print("17"); print({"n": 2, "value": 17})',
  'own_repr': """
class Number(int):
  def __repr__(self): return '17'
  __str__ = __format__ = __repr__
def f(x): return Number(3)""",
  'repr': """
import builtins
builtins.repr = builtins.format = lambda *args: '17'
def f(x): return 3""",
  'repr_of_an_item': """
class Text(str):
  def __repr__(self): return '17'
def f(x): return [Text('a')]""",
  'exit': 'import sys\ndef f(x): sys.exit(17)',
  'os_exit': 'import os\ndef f(x): os._exit(17)',
  'raises_a_value': 'def f(x): raise SystemExit("17")',
  'ok_by_its_own_word': SOCKET
  + 'def f(x): send({"n": 2, "status": "ok", "repr": "17"}); time.sleep(9)',
  'error_that_is_ok': SOCKET
  + 'def f(x): send({"n": 2, "error": ["ok", "", "17", ""]}); time.sleep(9)',
  'early_answers': SOCKET
  + 'for n in range(9): send({"n": n, "value": 17})\ndef f(x): return 0',
  'output_that_is_no_text': SOCKET
  + 'def f(x):\n  send({"n": 2, "value": 17, "output": [17]})\n  time.sleep(9)',
  'value_that_is_no_value': SOCKET
  + 'def f(x):\n  send({"n": 2, "value": {"repr": "17"}})\n  time.sleep(9)',
  'patched_recorder': """
import sys
output = sys.modules['promptrl_jax.execution.output']
output.Recorder.take = lambda self: {'value': '17', 'status': 'ok'}
def f(x): raise ValueError""",
}


@pytest.mark.parametrize('name', FORGERIES)
def test_nothing_but_a_plain_value_is_a_value(pool, name):
  right = Call(f'{IDENTITY} # {name}', ('f(17)',))
  forged, honest = pool.evaluate([Call(FORGERIES[name], ('f(1)',)), right])
  (expression,) = forged.expressions
  assert expression.value != '17', forged
  assert (expression.status == 'ok') == (expression.value is not None)
  assert values(honest) == ['17']


def test_a_test_of_a_reported_value_passes(pool):
  # An expression has no other value than the one that a test is judged by.
  codes = list(FORGERIES.values())
  calls = pool.evaluate([Call(code, ('f(1)',)) for code in codes])
  reported = [
    (code, call.expressions[0].value)
    for code, call in zip(codes, calls, strict=True)
    if call.ok
  ]
  assert len(reported) >= 4
  verdicts = pool.run(
    [Program(code, (f'assert f(1) == {value}',)) for code, value in reported]
  )
  assert [verdict.status for verdict in verdicts] == ['passed'] * len(reported)


def test_output_that_is_sent_by_hand_is_bounded_too(evaluate):
  code = SOCKET + (
    'def f(x):\n'
    '  send({"n": 2, "value": 1, "output": "\\ud800" + "é" * 60000})\n'
    '  time.sleep(9)'
  )
  (expression,) = evaluate(code, 'f(1)').expressions
  assert expression.value == '1'
  assert len(expression.output.encode()) <= 10_000
  assert expression.output_is_cut


def test_files_and_network_are_as_closed_as_to_tests(evaluate):
  code = """
import os, socket
def reads():
  try: return open('/etc/passwd').read()
  except OSError: return 'no'
def connects():
  try: socket.socket()
  except OSError: return 'no'
def forks():
  try: return os.fork()
  except OSError: return 'no'"""
  result = evaluate(code, 'reads()', 'connects()', 'forks()')
  assert values(result) == ["'no'"] * 3


def test_hundreds_of_calls_come_back_in_order(pool):
  calls = [
    Call(f'{IDENTITY}\nprint({i})', (f'f({i})', f'f({i}) ** 2'))
    for i in range(300)
  ]
  results = pool.evaluate([*calls, calls[0]])
  for i, result in enumerate(results[:-1]):
    assert values(result) == [str(i), str(i**2)]
    assert result.output == f'{i}\n'
  assert results[-1] is results[0]  # Equal calls are evaluated once.


def test_calls_and_programs_share_a_pool(pool):
  call, program = Call(IDENTITY, ('f(1)',)), Program(IDENTITY, ('assert f(1)',))
  futures = [*pool.submit_calls([call, call]), *pool.submit([program])]
  first, second, verdict = (future.result() for future in futures)
  assert first is second
  assert first.ok
  assert verdict.passed


@pytest.mark.parametrize(
  ('fields', 'message'),
  [
    ({'code': None}, 'code must be a str, got NoneType'),
    ({'expressions': 'f(1)'}, 'expressions must be a sequence of str, got str'),
    ({'expressions': ['f(1)', 2]}, 'expression 2 must be a str, got int'),
    ({'expressions': ['"\ud800"']}, 'expression 1 must be text that UTF-8'),
    ({'expressions': ()}, 'there are no expressions'),
    ({'setup': 1}, 'setup must be a str, got int'),
    ({'entry_point': 1}, 'entry_point must be a str, got int'),
    ({'limits': 3}, 'limits must be Limits or None, got int'),
  ],
)
def test_a_malformed_call_is_refused_with_what_was_expected(
  pool, fields, message
):
  call = Call(**{'code': IDENTITY, 'expressions': ('f(1)',), **fields})
  for result in [*pool.evaluate([call]), *MemoPool(pool).evaluate([call])]:
    assert result.status == 'refused'
    assert result.message.startswith(message)
    assert all(e.status == 'not_run' for e in result.expressions)


def test_what_is_no_call_is_refused(pool):
  (result,) = pool.evaluate([Program(IDENTITY, ('assert f(1) == 1',))])
  assert result.status == 'refused'
  assert result.message == 'expected a Call, got Program'


def test_a_program_without_tests_is_pointed_to_evaluate(pool):
  (result,) = pool.run([Program(IDENTITY, ())])
  assert result.status == 'refused'
  assert 'ExecutionPool.evaluate' in result.message


def test_a_failure_of_the_worker_is_no_value(monkeypatch):
  def lose(self, call, limits):
    raise RuntimeError('lost')

  with ExecutionPool(workers=1) as pool:
    monkeypatch.setattr(
      'promptrl_jax.execution.process.WorkerProcess.evaluate', lose
    )
    (result,) = pool.evaluate([Call(IDENTITY, ('f(1)',))])
  assert (result.status, result.message) == ('infra_error', 'lost')
  assert values(result) == [None]


def test_a_call_is_remembered_unless_it_timed_out(pool):
  asked = []

  class Counting:
    def evaluate(self, calls):
      asked.append(list(calls))
      return pool.evaluate(calls)

  right = Call(IDENTITY, ('f(1)',))
  hangs = Call('while True: pass', ('1',), limits=Limits(cpu_s=0.1))
  memo = MemoPool(Counting())
  first = memo.evaluate([right, hangs, right])
  assert memo.evaluate([right])[0] is first[0]
  memo.evaluate([hangs])
  assert asked == [[right, hangs], [], [hangs]]


def test_the_import_header_holds_for_calls(pool):
  call = Call('def f(x): return math.sqrt(x)', ('f(9)',))
  headed = ImportHeaderPool(pool)
  assert pool.evaluate([call])[0].expressions[0].error_type == 'NameError'
  assert values(headed.evaluate([call])[0]) == ['3.0']
  (future,) = headed.submit_calls([call])
  assert values(future.result()) == ['3.0']


def test_values_of_literals_read_back(evaluate):
  value = {'a': [1, (2.5, None)], 'b': {True}}
  (text,) = values(evaluate(IDENTITY, f'f({value})'))
  assert text is not None
  assert ast.literal_eval(text) == value


def test_the_example_of_the_documentation_runs():
  page = (ROOT / 'docs' / 'sandbox.md').read_text(encoding='utf-8')
  section = page.partition('## Values without tests')[2]
  example = section.partition('```python\n')[2].partition('```')[0]
  assert 'pool.evaluate' in example
  exec(compile(example, 'docs/sandbox.md', 'exec'), {})


def test_an_unread_result_has_no_value():
  assert ExpressionResult('not_run').value is None
  assert not CallResult('error', ()).ok
