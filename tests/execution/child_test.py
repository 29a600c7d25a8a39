"""The judge's end of a candidate, with a zygote and candidates played here."""

from __future__ import annotations

import contextlib
import os
import socket
import threading

import pytest

from promptrl_jax.execution import Limits, child, codec, conversation, wire
from promptrl_jax.execution import limits as limits_lib
from tests import scripts


@contextlib.contextmanager
def played(*answers: bytes, hello: bytes = wire.HELLO):
  """A session; its candidate greets, then answers what is given, in turn."""
  control, zygote = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
  trainer, far_end = socket.socketpair()

  def play():
    with zygote, contextlib.suppress(ConnectionError):
      _, descriptors, _, _ = socket.recv_fds(zygote, 4096, 1)
      if not descriptors:  # No candidate was ordered.
        return
      with socket.socket(fileno=descriptors[0]) as channel:
        channel.sendall(hello)
        for answer in answers:
          wire.receive(channel)
          channel.sendall(answer)
        zygote.recv(4096)  # the order to end it

  thread = threading.Thread(target=play, daemon=True)
  thread.start()
  with control, trainer, far_end:
    # The clocks that it watches are those of this process.
    limits = Limits(cpu_s=3600, processes=1000)
    yield child.Session(control, trainer, limits)
  thread.join(10)


@pytest.mark.parametrize(
  ('answer', 'message'),
  [
    (wire.HEADER.pack(3) + b'abc', r'malformed answer \('),
    (wire.pack([1, 2]), 'answer to something else'),
    (wire.pack({'n': 2, 'value': 1}), 'answer to something else'),
  ],
)
def test_what_answers_no_request_is_a_crash(answer, message):
  with played(answer) as session:
    session.begin()
    assert session.is_alive()
    with pytest.raises(child.LostError, match=message) as raised:
      session.ask({'call': 'f'})
    assert raised.value.status == 'crash'


def test_a_candidate_that_does_not_greet_is_no_candidate():
  error = pytest.raises(child.WorkerError, match='could not be confined')
  with played(hello=b'?' * len(wire.HELLO)) as session, error:
    session.begin()


def test_nothing_is_asked_before_there_is_a_candidate():
  with played() as session:
    assert not session.is_alive()
    assert session.end() == (0, 0.0)
    with pytest.raises(child.LostError, match='its process has ended'):
      session.ask({'call': 'f'})


def test_the_end_of_the_zygote_ends_the_worker():
  with played() as session:
    session.begin()
    with pytest.raises(child.WorkerError, match='the zygote is gone'):
      session.end()  # the zygote closes its socket instead of an answer
    with pytest.raises(child.WorkerError, match='the zygote is gone'):
      session.begin()
  control, zygote = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
  zygote.close()
  with control, pytest.raises(child.WorkerError, match='did not start'):
    child.layers_of(control)


class Scripted:
  """A session that gives prepared answers, or raises them."""

  def __init__(self, *answers):
    self.answers = list(answers)
    self.requests = []

  def begin(self):
    pass

  def end(self):
    pass

  def ask(self, request):
    self.requests.append(request)
    answer = self.answers.pop(0)
    if isinstance(answer, Exception):
      raise answer
    return answer

  answer = ask


def relay(program, *of_tester):
  """Runs a test in a process of its own, which says what is given."""
  tester = Scripted(*of_tester)
  relayed = conversation.Relay('assert f(1) == 1', '', 'f', program, tester)
  try:
    relayed.run()
  except conversation.Verdict as raised:
    return raised.verdict, tester
  return ('passed', '', ''), tester


ENDED = {'ended': ['passed', '', '']}
CALL = {'call': [[codec.encode(1)], {}]}


def test_a_call_of_a_test_reaches_the_program_and_its_value_the_test():
  program = Scripted({'value': codec.encode(1)})
  verdict, tester = relay(program, CALL, ENDED)
  assert verdict[0] == 'passed'
  assert program.requests[0]['call'] == 'f'
  assert tester.requests[1] == {'value': codec.encode(1)}


def test_an_exception_of_the_program_is_raised_in_the_test():
  program = Scripted({'error': ['error', 'KeyError', 'x', 'test']})
  _, tester = relay(program, CALL, ENDED)
  assert tester.requests[1] == {'raised': ['KeyError', 'x']}


def test_a_program_without_memory_ends_the_test():
  program = Scripted({'error': ['memory', 'MemoryError', 'x', 'test']})
  verdict, _ = relay(program, CALL)
  assert verdict == ('memory', 'MemoryError', 'x')


@pytest.mark.parametrize(
  'message',
  [
    {'call': 1},
    {'call': [[]]},
    {'call': [1, {}]},
    {'call': [[], 1]},
    {'ended': 'passed'},
    {'ended': ['passed']},
    {'nothing': 1},
  ],
)
def test_a_tester_that_breaks_the_protocol_passes_nothing(message):
  verdict, _ = relay(Scripted(), message)
  assert verdict[0] == 'invalid'
  assert verdict[2].startswith('the test: malformed')


@pytest.mark.parametrize(
  ('status', 'expected'), [('timeout', 'timeout'), ('crash', 'invalid')]
)
def test_a_tester_that_is_lost_passes_nothing(status, expected):
  lost = child.LostError(status, 'gone')
  verdict, _ = relay(Scripted(), lost)
  assert (verdict[0], verdict[2]) == (expected, 'the test: gone')


@pytest.mark.parametrize(
  'answer',
  [
    {'error': 1},
    {'error': ['error', 'E']},
    {'error': ['passed', 'E', '', 'test']},
    {'error': ['syntax_error', 'E', '', 'test']},
    {},
    {'value': {'odd': 1}},
  ],
)
def test_an_answer_that_no_candidate_gives_is_a_crash(answer):
  with pytest.raises(child.LostError, match='malformed answer') as raised:
    relay(Scripted(answer), CALL, ENDED)
  assert raised.value.status == 'crash'


def test_tasks_of_this_user_are_counted():
  count = limits_lib.user_tasks()
  assert count is not None and count >= len(os.listdir('/proc/self/task'))


# Without a process namespace, what a program leaves behind is looked for.
ORPHANS = """
import json, os, subprocess, sys
from promptrl_jax.execution import kernel, zygote
kernel.adopt_orphans()
shell = 'setsid sleep 300 & setsid sleep 300 & wait'
child = subprocess.Popen(['sh', '-c', shell], stdout=subprocess.PIPE)
while len(os.listdir(f'/proc/{child.pid}/task')) and len(
    open(f'/proc/{child.pid}/task/{child.pid}/children').read().split()) < 2:
  pass
pids = open(f'/proc/{child.pid}/task/{child.pid}/children').read().split()
zygote.kill_children(is_first=False)
pids.append(child.pid)
print(json.dumps([os.path.exists(f'/proc/{pid}') for pid in pids]))
"""


def test_children_and_their_orphans_are_ended():
  assert scripts.found(ORPHANS, timeout=30) == [False] * 3
