"""The command that runs programs from lines of JSON."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
from concurrent.futures import Future

import pytest

from promptrl_jax.execution import Limits, Program, __main__, jsonl

ROOT = pathlib.Path(__file__).parents[2]
COMMAND = [sys.executable, '-m', 'promptrl_jax.execution', '--workers=1']
RIGHT = {'code': 'def f(x): return x', 'tests': ['assert f(1) == 1']}
SLEEPS = {'code': 'import time\ntime.sleep(100)', 'tests': RIGHT['tests']}


def run(lines: list[str], *flags: str):
  """Runs the command; returns the results and the finished process."""
  process = subprocess.run(
    [*COMMAND, *flags],
    input='\n'.join(lines).encode(),
    capture_output=True,
    cwd=ROOT,
    timeout=60,
  )
  return [json.loads(line) for line in process.stdout.splitlines()], process


@contextlib.contextmanager
def started():
  process = subprocess.Popen(
    COMMAND,
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    cwd=ROOT,
  )
  with process:
    try:
      yield process
    finally:
      process.kill()


def send(process: subprocess.Popen[bytes], *rows: object) -> None:
  assert process.stdin is not None
  process.stdin.writelines(json.dumps(row).encode() + b'\n' for row in rows)
  process.stdin.flush()


def workers_of(pid: int) -> list[pathlib.Path]:
  mark, workers = f'promptrl-execution-{pid}-'.encode(), []
  for path in pathlib.Path('/proc').glob('[0-9]*/cmdline'):
    with contextlib.suppress(OSError):
      workers += [path] if mark in path.read_bytes() else []
  return workers


def all_gone(pid: int) -> bool:
  deadline = time.monotonic() + 5
  while workers_of(pid) and time.monotonic() < deadline:
    time.sleep(0.02)
  return not workers_of(pid)


def test_results_come_in_the_order_of_the_lines():
  rows = [
    {**RIGHT, 'id': 'both', 'tests': [*RIGHT['tests'], 'assert f(1) == 2']},
    {**RIGHT, 'id': 7, 'setup': 'y = 1', 'entry_point': 'f', 'more': 0},
    {**RIGHT, 'code': 'while True: pass', 'cpu_s': 0.1},
    {**RIGHT, 'code': '', 'setup': None, 'cpu_s': None, 'id': None},
  ]
  results, process = run([json.dumps(row) for row in rows], '--workers=2')
  assert process.returncode == 0
  assert process.stderr == b''
  assert [result['id'] for result in results] == ['both', 7, None, None]
  statuses = ['failed', 'passed', 'timeout', 'no_code']
  assert [result['status'] for result in results] == statuses
  assert results[0] == {
    'id': 'both',
    'status': 'failed',
    'score': 0.5,
    'tests': [
      {'status': 'passed', 'error_type': '', 'message': ''},
      {
        'status': 'failed',
        'error_type': '',
        'message': 'f(1) returned 1, expected 2',
      },
    ],
    'cpu_s': results[0]['cpu_s'],
    'wall_s': results[0]['wall_s'],
    'message': '',
  }
  assert 0 < results[0]['cpu_s'] <= results[0]['wall_s'] + 0.02 < 10
  assert 0.1 < results[2]['cpu_s'] < 1


def test_a_line_with_expressions_asks_for_values():
  code = 'print("loaded")\ndef f(x): return [x]'
  rows = [
    {'id': 1, 'code': code, 'expressions': ['f(2)', '1 / 0'], 'cpu_s': 0.5},
    RIGHT,
    {'id': 2, 'code': code, 'expressions': ['f(2)'], 'tests': RIGHT['tests']},
    {'id': 3, 'code': code, 'expressions': []},
  ]
  results, process = run([json.dumps(row) for row in rows])
  assert process.returncode == 0
  first, second, both, none = results
  assert first == {
    'id': 1,
    'status': 'error',
    'expressions': [
      {
        'status': 'ok',
        'value': '[2]',
        'value_is_cut': False,
        'output': '',
        'output_is_cut': False,
        'error_type': '',
        'message': '',
      },
      {
        'status': 'error',
        'value': None,
        'value_is_cut': False,
        'output': '',
        'output_is_cut': False,
        'error_type': 'ZeroDivisionError',
        'message': 'division by zero',
      },
    ],
    'output': 'loaded\n',
    'output_is_cut': False,
    'cpu_s': first['cpu_s'],
    'wall_s': first['wall_s'],
    'message': '',
  }
  assert second['status'] == 'passed'
  message = "line 3: expected 'tests' or 'expressions', got both"
  assert (both['status'], both['message']) == ('refused', message)
  assert none['message'].startswith('line 4: there are no expressions')


def test_limits_come_from_the_command_line():
  loop = {**RIGHT, 'code': 'while True: pass'}
  greedy = {**RIGHT, 'code': 'x = bytearray(200 * 2**20)'}
  lines = [json.dumps(loop), json.dumps(greedy)]
  results, _ = run(lines, '--cpu-s=0.2', '--memory-mb=128')
  assert [result['status'] for result in results] == ['timeout', 'memory']
  assert 0.2 < results[0]['cpu_s'] < 1


def test_a_malformed_line_is_refused_by_number_and_costs_no_other():
  right = json.dumps(RIGHT)
  lines = [right, '', ' \t', '{', '[' * 100_000, 'null', '[1]', right]
  results, process = run(lines)
  assert process.returncode == 0
  assert process.stderr == b''
  assert results[0]['status'] == results[-1]['status'] == 'passed'
  for number, result in zip([4, 5, 6, 7], results[1:-1], strict=True):
    assert (result['status'], result['score']) == ('refused', None)
    assert result['message'].startswith(f'line {number}: ')


@pytest.mark.parametrize(
  ('fields', 'message'),
  [
    ({'code': None}, "the field 'code' is missing"),
    ({'tests': None}, "the field 'tests' is missing"),
    ({'id': [1]}, 'id must be a string or a number, got a list'),
    ({'cpu_s': '1'}, 'cpu_s must be a number, got a string'),
    ({'cpu_s': True}, 'cpu_s must be a number, got a bool'),
    ({'cpu_s': 0}, 'cpu_s must be above 0'),
    ({'cpu_s': 10**400}, 'cpu_s must be above 0 and at most'),
    ({'cpu_s': float('nan')}, 'not JSON: the number NaN'),
  ],
)
def test_a_wrong_field_is_named(fields, message):
  line = json.dumps({**RIGHT, **fields}).encode()
  _, fault = jsonl.parse(line, Limits())
  assert isinstance(fault, str)
  assert fault.startswith(message)


def test_numbers_that_json_cannot_hold_do_not_come_back():
  _, fault = jsonl.parse(b'{"id": 1e999, "code": "", "tests": []}', Limits())
  assert fault == 'not JSON: the number 1e999'


@pytest.mark.parametrize('line', [b'\xff', b'"\xc3', b'1' * 5000, b'\x00'])
def test_bytes_that_are_no_json_are_named(line):
  _, fault = jsonl.parse(line, Limits())
  assert str(fault).startswith('not JSON: ')


def test_fields_of_another_type_are_left_to_the_program():
  line = json.dumps({**RIGHT, 'code': 1, 'id': 'x'}).encode()
  name, program = jsonl.parse(line, Limits())
  assert name == 'x'
  assert isinstance(program, Program)
  assert program.malformed == 'code must be a str, got int'


def test_own_seconds_leave_the_other_limits():
  line = json.dumps({**RIGHT, 'cpu_s': 30}).encode()
  _, program = jsonl.parse(line, Limits(memory_mb=77))
  assert isinstance(program, Program)
  assert program.limits == Limits(cpu_s=30.0, wall_s=120.0, memory_mb=77)


def test_a_line_that_is_too_long_is_skipped_in_bounded_memory(monkeypatch):
  monkeypatch.setattr(jsonl, 'MAX_LINE', 8)
  text = b'short\n' + b'x' * 30 + b'\n1234567\n12345678\n' + b'x' * 8
  assert list(jsonl.lines(io.BytesIO(text))) == [
    (1, b'short\n'),
    (2, None),
    (3, b'1234567\n'),
    (4, None),
    (5, None),
  ]


def test_a_result_is_there_before_the_next_line_is():
  with started() as process:
    assert process.stdout is not None
    for name in range(3):
      send(process, {**RIGHT, 'id': name})
      assert json.loads(process.stdout.readline())['id'] == name
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(20) == 0


class _Endless:
  """An endless source of lines that counts them."""

  def __init__(self):
    self.read = 0

  def readline(self, size: int) -> bytes:
    self.read += 1
    return json.dumps(RIGHT).encode()


class _Stuck:
  """A pool whose futures are never done."""

  def submit(self, programs):
    return [Future() for _ in programs]


def test_only_so_many_lines_are_read_ahead():
  source = _Endless()
  answers = __main__._read_ahead(_Stuck(), source, Limits(), 2)  # type: ignore[arg-type]
  assert [number for number, *_ in itertools.islice(answers, 10)] == [
    *range(1, 11)
  ]
  read = -1
  while read != source.read:
    read = source.read
    time.sleep(0.1)
  assert 10 < read <= 10 + 2 * __main__._AHEAD + 1


def test_a_reader_that_leaves_ends_the_command_quietly():
  with started() as process:
    assert process.stdout is not None
    assert process.stderr is not None
    send(process, RIGHT)
    assert process.stdout.readline()
    assert workers_of(process.pid)
    process.stdout.close()
    send(process, RIGHT, SLEEPS)  # And more lines may come.
    assert process.wait(20) == 128 + signal.SIGPIPE
    assert process.stderr.read() == b''
    assert all_gone(process.pid)


@pytest.mark.usefixtures('interruptible')
def test_an_interrupt_ends_the_command_quietly():
  with started() as process:
    assert process.stdout is not None
    assert process.stderr is not None
    send(process, RIGHT, SLEEPS)
    assert process.stdout.readline()
    assert workers_of(process.pid)
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 128 + signal.SIGINT
    assert process.stdout.read() == b''
    assert process.stderr.read() == b''
    assert all_gone(process.pid)
    assert not list(
      pathlib.Path('/dev/shm').glob(f'promptrl-execution-{process.pid}-*')
    )


def test_no_lines_are_no_results():
  results, process = run([])
  assert (results, process.returncode) == ([], 0)


@pytest.mark.parametrize(
  ('flag', 'message'),
  [
    ('--workers=0', 'expected a whole number from 1 to'),
    ('--workers=x', "got 'x'"),
    ('--cpu-s=nan', 'expected a number from'),
    ('--memory-mb=1', 'expected a whole number from 16 to'),
    ('--what', 'unrecognized arguments: --what'),
  ],
)
def test_wrong_arguments_are_named(capsys, flag, message):
  with pytest.raises(SystemExit) as raised:
    __main__.main([flag])
  assert raised.value.code == 2
  assert message in capsys.readouterr().err


def test_help_names_every_field(capsys):
  with pytest.raises(SystemExit) as raised:
    __main__.main(['--help'])
  assert raised.value.code == 0
  text = capsys.readouterr().out
  for word in (
    *('code', 'tests', 'id', 'setup', 'cpu_s', 'entry_point'),
    *('score', 'refused', 'infra_error', '--workers', '130', '32 MiB'),
  ):
    assert word in text


def test_input_that_cannot_be_read_is_reported():
  null = os.open(os.devnull, os.O_WRONLY)
  process = subprocess.run(
    COMMAND, stdin=null, capture_output=True, cwd=ROOT, timeout=60
  )
  os.close(null)
  assert process.returncode == 1
  assert b'Bad file descriptor' in process.stderr
  assert b'Traceback' not in process.stderr
