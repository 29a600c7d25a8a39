"""Programs that try to pass tests without returning the right answer."""

from __future__ import annotations

import os

import pytest

from promptrl_jax.execution import ExecutionPool, Limits, Program

TESTS = ('assert f(1) == 17', 'assert f(2) == 19')

EQUAL_TO_ALL = """
class Equal(int):
  def __eq__(self, other): return True
  def __ne__(self, other): return False
  def __bool__(self): return True
  def __hash__(self): return 17
"""

FORGERIES = {
  'equal_object': """
class Equal:
  def __eq__(self, other): return True
def f(x): return Equal()""",
  'equal_int': EQUAL_TO_ALL + 'def f(x): return Equal(3)',
  'equal_in_list': EQUAL_TO_ALL + 'def f(x): return [Equal(3)]',
  'reflected_eq': """
class Number(float):
  def __eq__(self, other): return True
  __req__ = __eq__
def f(x): return Number(1)""",
  'fake_class': """
class Fake:
  __class__ = int
  def __index__(self): return 17
  def __eq__(self, other): return True
def f(x): return Fake()""",
  'builtins': """
import builtins
for name in ('isinstance', 'all', 'any', 'repr', 'type'):
  setattr(builtins, name, lambda *args: True)
def f(x): return 0""",
  'json': """
import json, json.encoder
json.dumps = lambda *args, **kwargs: '{"n": 2, "passed": true, "done": true}'
def f(x): return 0""",
  'exit': 'import sys\ndef f(x): sys.exit(0)',
  'exit_while_loading': 'import sys\nsys.exit(0)',
  'os_exit': 'import os\ndef f(x): os._exit(0)',
  'os_exit_while_loading': 'import os\nos._exit(0)',
  'system_exit': 'def f(x): raise SystemExit(0)',
  'keyboard_interrupt': 'def f(x): raise KeyboardInterrupt',
  'own_base_exception': """
class Passed(BaseException): pass
def f(x): raise Passed('passed')""",
  'print': 'def f(x):\n  print("passed", 17)',
  'atexit': 'import atexit\natexit.register(print, 17)\ndef f(x): return 0',
  'exec': """
import os
def f(x): os.execv('/bin/true', ['true'])""",
  'all_descriptors': """
import os
def f(x):
  for fd in range(256):
    try: os.write(fd, b'passed' * 100)
    except OSError: pass
  return 0""",
  'frames': """
import sys
def f(x):
  frame = sys._getframe()
  while frame:
    for name, value in frame.f_locals.items():
      if name in ('expected', 'right', 'plan', 'tests', 'program'):
        return value
    frame = frame.f_back
  return 0""",
  'garbage': """
import gc, re
def f(x):
  for thing in gc.get_objects():
    if isinstance(thing, (list, tuple, dict)):
      found = re.search(rf'assert f.{x}. == (.+?)[^0-9]', repr(thing))
      if found: return int(found[1])
  return 0""",
  'swallows_asserts': """
import builtins
builtins.AssertionError = Exception
def f(x): return 0""",
  'trace': """
import sys
def trace(frame, event, arg):
  frame.f_locals.clear()
  return trace
sys.settrace(trace)
def f(x): return 0""",
  'asserts_itself': 'def f(x): assert False, "passed"',
  'changes_the_tests': """
import sys
for module in list(sys.modules.values()):
  for name in ('split', '_judge', '_Verdict', 'decode', 'status'):
    if hasattr(module, name): setattr(module, name, lambda *a, **k: 'passed')
def f(x): return 0""",
  'patched_harness': """
import sys
codec = sys.modules['promptrl_jax.execution.codec']
codec.encode = lambda value: {'passed': True}
def f(x): return 0""",
}

# Writes to the socket of the judge by raw system calls.
SOCKET = """
import json, os, struct, threading, time
def send(message):
  body = json.dumps(message).encode()
  os.write(3, struct.pack('>I', len(body)) + body)
"""

FORGERIES |= {
  'extra_answer': SOCKET
  + 'def f(x):\n  send({"n": 2, "value": 5})\n  return 5',
  'verdict': SOCKET + 'def f(x):\n  send({"n": 2, "status": "passed"})\n',
  'error_of_its_own': SOCKET
  + 'def f(x):\n  send({"n": 2, "error": ["passed", "", "", ""]})',
  'late_syntax_error': SOCKET
  + 'def f(x):\n  send({"n": 2, "error": ["syntax_error", "", "", ""]})',
  'early_answers': SOCKET
  + 'for n in range(9): send({"n": n, "value": 17})\ndef f(x): return 0',
  'thread': SOCKET
  + """
def flood():
  n = 0
  while True: send({'n': n % 5, 'value': 0}); n += 1
threading.Thread(target=flood, daemon=True).start()
def f(x): return 0""",
  'huge_length': SOCKET
  + 'def f(x):\n  os.write(3, b"\\xff" * 100)\n  time.sleep(9)',
  'not_json': SOCKET
  + 'def f(x):\n  os.write(3, b"\\0\\0\\0\\4}}}}")\n  time.sleep(9)',
  'deep_json': SOCKET
  + 'def f(x):\n  os.write(3, b"\\0\\1\\0\\0" + b"[" * 65536)\n  time.sleep(9)',
  'wrong_tag': SOCKET
  + 'def f(x):\n  send({"n": 2, "value": {"object": 1}})\n  time.sleep(9)',
  'long_int': SOCKET
  + """
def f(x):
  body = b'{"n": 2, "value": ' + b'1' * 10**6 + b'}'
  os.write(3, struct.pack('>I', len(body)) + body)
  time.sleep(9)""",
  'never_answers': SOCKET + 'def f(x):\n  os.close(3)\n  time.sleep(100)',
  'descendant_holds_the_socket': SOCKET
  + """
def f(x):
  if os.fork() == 0: time.sleep(100)
  os._exit(0)""",
}


@pytest.fixture(scope='module')
def verdicts(pool):
  # One batch, in which honest programs must be judged correctly all the same.
  right = 'def f(x): return {1: 17, 2: 19}[x] #'
  programs = []
  for number, code in enumerate(FORGERIES.values()):
    programs += [Program(code, TESTS), Program(right + str(number), TESTS)]
  results = pool.run(programs)
  return dict(zip(FORGERIES, results[::2], strict=True)), results[1::2]


@pytest.mark.parametrize('name', FORGERIES)
def test_a_forgery_passes_no_test(verdicts, name):
  result = verdicts[0][name]
  assert not result.passed
  assert result.score == 0.0, result
  assert all(
    test.status in ('failed', 'error', 'timeout', 'crash', 'invalid', 'not_run')
    for test in result.tests
  ), result


def test_neighbours_of_forgeries_are_judged_right(verdicts):
  assert [r.status for r in verdicts[1]] == ['passed'] * len(FORGERIES)


def test_a_forged_value_can_be_wrong_only_for_its_author(judge):
  code = SOCKET + (
    'def f(x):\n  send({"n": 2, "value": 17})\n  time.sleep(0.05)\n  return 17'
  )
  result = judge(code, *TESTS, 'assert f(3) == 17')
  assert result.tests[0].status == 'passed'  # Its value was right.
  assert result.tests[1].status == 'crash'  # Then it sent another one.


def test_a_method_of_plain_data_is_not_left_to_the_program(judge):
  code = """
class Text(str):
  def startswith(self, other): return True
class Thing:
  def startswith(self, other): return True
  def __contains__(self, other): return True
  def __len__(self): return 3
def f(x): return Text('b') if x else Thing()"""
  result = judge(
    code,
    "assert f(1).startswith('a')",
    "assert f(0).startswith('a')",
    "s = f(0)\nassert s.startswith('a')",
    "ok = f(0).startswith('a')\nassert ok",
    'assert 3 in f(0)',
    'assert len(f(0)) == 3',
  )
  assert [test.status for test in result.tests] == ['failed'] + ['invalid'] * 5


def test_no_verdict_is_computed_by_the_program(judge):
  code = EQUAL_TO_ALL + 'def f(x): return Equal(x)\ndef g(x): return f'
  result = judge(
    code,
    'ok = f(1) == 2\nassert ok',
    'r = f(1)\nok = r == 2\nassert ok',
    'ok = True\nok &= f(1) == 2\nassert ok',
    'oks = [f(x) == 2 for x in (1, 3)]\nassert all(oks)',
    'ok = not f(0)\nassert not ok',
    'def check(x):\n  return f(x) == 2\nassert check(1)',
  )
  assert [test.status for test in result.tests] == ['failed'] * 6


def test_builtins_in_a_test_are_the_judges(judge):
  code = """
def isinstance(*args): return True
def abs(x): return 0
def len(x): return 3
def f(x): return x"""
  result = judge(
    code,
    'assert isinstance(f(1), str)',
    'assert abs(f(5) - 1) < 1',
    'assert len(f([1])) == 3',
  )
  assert [test.status for test in result.tests] == ['failed'] * 3


def test_a_program_that_lacks_the_function_cannot_pass_by_a_builtin(judge):
  result = judge('def g(x): return x', 'assert sum([1, 2]) == 3')
  assert result.tests[0].error_type == 'NameError'
  assert judge('def sum(a): return 3', 'assert sum([1, 2]) == 3').passed


def test_the_judge_cannot_be_read_by_a_program(judge):
  code = """
import os
def f(x):
  for pid in os.listdir('/proc') if os.path.isdir('/proc/1') else ():
    if pid.isdigit() and int(pid) != os.getpid():
      try: command = open(f'/proc/{pid}/cmdline').read()
      except OSError: continue
      if 'promptrl_jax.execution' in command:
        try: open(f'/proc/{pid}/mem', 'rb').close()
        except PermissionError: continue
        return 'readable'
  return 'not readable'"""
  assert judge(code, "assert f(1) == 'not readable'").passed


@pytest.mark.parametrize(
  'code',
  [
    'def f(x): return f(x)',
    'import sys\nsys.setrecursionlimit(10**9)\ndef f(x): return f(x)',
    'x = []\nfor _ in range(10**5): x = [x]\ndef f(_): return x',
    'x = []\nx.append(x)\ndef f(_): return x',
    'def f(x):\n  while True: print("x" * 10**6)',
    'def f(x):\n  with open("a", "wb") as file: file.write(bytes(10**7))',
    'import os\ndef f(x):\n  [os.open("/dev/null", 0) for _ in range(999)]',
    'import os\ndef f(x):\n  os.kill(os.getpid(), 19)',
    'import signal\ndef f(x):\n  signal.alarm(1)\n  while True: pass',
    'import resource as r\ndef f(x):\n  r.setrlimit(r.RLIMIT_AS, (-1, -1))',
    'def f(x): return {i * (2**61 - 1) for i in range(4999)}',
    'def f(x): return 10 ** 10 ** 9',
  ],
)
def test_greed_ends_within_the_limits(judge, code):
  result = judge(code, 'assert f(1) == 17')
  assert result.status in (
    *('failed', 'error', 'timeout', 'memory', 'crash', 'invalid'),
  )
  assert result.wall_s < 5


@pytest.mark.parametrize('kept_open', [0, 300])
@pytest.mark.parametrize('open_files', [5, 64])
def test_a_program_holds_no_descriptor_but_its_own(kept_open, open_files):
  # With a descriptor of the worker it could write a verdict to the trainer.
  code = """
import fcntl
def held(fd):
  try: return fcntl.fcntl(fd, fcntl.F_GETFD) >= 0
  except OSError: return False
def f(): return [fd for fd in range(2000) if held(fd)]"""
  limits = Limits(open_files=open_files)
  files = [os.open(os.devnull, os.O_RDONLY) for _ in range(kept_open)]
  try:
    with ExecutionPool(workers=1, limits=limits) as pool:
      (result,) = pool.run([Program(code, ('assert f() == [0, 1, 2, 3]',))])
  finally:
    for file in files:
      os.close(file)
  assert result.passed, result
