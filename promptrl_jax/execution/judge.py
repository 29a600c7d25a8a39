"""The judge: holds the tests, asks the program for values, gives the verdicts.

It never runs, unpickles or evaluates anything of a program's; it is given plain
values (`codec.py`) and runs the rest of each test on them (`conversation.py`).
"""

from __future__ import annotations

import socket
import time
from typing import Any

from promptrl_jax.execution import child as child_lib
from promptrl_jax.execution import conversation, split, wire
from promptrl_jax.execution import limits as limits_lib

Verdict = tuple[str, str, str]  # Status, class of the exception, message.

_MAX_TIMEOUTS = 2


def serve(trainer: socket.socket, control: socket.socket, folder: str) -> None:
  """Judges programs, one at a time, until the trainer hangs up.

  Args:
    trainer: stream socket; a request has the fields of `Program`, an answer
      `status`, `message`, `tests` (verdicts), `cpu_s` and `wall_s`.
    control: sequenced-packet socket to the zygote.
    folder: where programs write if they have no root of their own.
  """
  try:
    layers = child_lib.layers_of(control)
    watched = None if layers['root'] else folder
    wire.send(trainer, layers)
    while True:
      program = wire.receive(trainer)
      limits = limits_lib.Limits(**program['limits'])
      session = child_lib.Session(control, trainer, limits, folder=watched)
      tester = child_lib.Session(control, trainer, limits, 'tester', watched)
      wire.send(trainer, _judge(program, session, tester))
  except (EOFError, ConnectionError, child_lib.WorkerError):
    return  # The trainer or the zygote is gone; the worker ends.


def _judge(
  program: dict[str, Any],
  session: child_lib.Session,
  tester: child_lib.Session,
) -> dict[str, Any]:
  start = time.monotonic()
  try:
    status, message, verdicts = _run_tests(program, session, tester)
  finally:
    session.end()
  return {
    'status': status or _first_other(verdicts),
    'message': message,
    'tests': verdicts,
    'cpu_s': session.cpu_s,
    'wall_s': time.monotonic() - start,
  }


def _run_tests(
  program: dict[str, Any],
  session: child_lib.Session,
  tester: child_lib.Session,
) -> tuple[str, str, list[Verdict]]:
  plans = [_plan(test, program) for test in program['tests']]
  verdicts: list[Verdict] = []
  timeouts = 0
  loads = 0
  for plan in plans:
    if isinstance(plan, tuple):
      verdicts.append(plan)
      continue
    if timeouts >= _MAX_TIMEOUTS or session.is_spent():
      verdicts.append(('not_run', '', 'the program has used up its time'))
      continue
    loaded = None
    if not session.is_alive():
      loaded = _load(program, session)
      loads += 1
    if loaded is not None:
      syntax_error = loaded[0] == 'syntax_error'
      verdict = ('error', *loaded[1:]) if syntax_error else loaded
      if loads == 1:  # It would fail again: one verdict for all.
        rest = [p if isinstance(p, tuple) else verdict for p in plans]
        return ('syntax_error' if syntax_error else ''), verdict[2], rest
    else:
      verdict = _run_test(plan, session, tester)
    verdicts.append(verdict)
    timeouts += verdict[0] == 'timeout'
  return '', '', verdicts


def _plan(
  test: str, program: dict[str, Any]
) -> split.Plan | conversation.Whole | Verdict:
  entry_point = program['entry_point']
  whole = conversation.Whole(test, program['setup'], entry_point or '')
  try:
    if program['isolate_tests']:
      if not entry_point:
        raise split.CannotSplitError('an isolated test needs an entry_point')
      return whole
    return split.split(test, program['setup'], entry_point)
  except split.CannotSplitError as error:
    if isinstance(error, split.NeedsTesterError) and entry_point:
      return whole
    return 'invalid', '', conversation.bounded(str(error))


def _load(
  program: dict[str, Any], session: child_lib.Session
) -> Verdict | None:
  """Loads the program in a fresh process; None if that went well."""
  try:
    session.begin()
    request = {'code': program['code'], 'setup': program['setup']}
    conversation.answer_to(session, request)
    return None
  except conversation.Verdict as error:
    verdict = error.verdict
  except child_lib.LostError as error:
    verdict = (error.status, '', f'while loading: {error}')
  session.end()
  return verdict


def _run_test(
  plan: split.Plan | conversation.Whole,
  session: child_lib.Session,
  tester: child_lib.Session,
) -> Verdict:
  if isinstance(plan, split.Plan):
    test = conversation.Conversation(plan, session)
  else:
    test = conversation.Relay(plan, session, tester)
  try:
    session.start_clock()
    test.run()
    return 'passed', '', ''
  except conversation.Verdict as error:
    if error.verdict[0] == 'memory':
      session.end()  # The next test gets a process that has its memory.
    return error.verdict
  except child_lib.LostError as error:
    session.end()
    message = conversation.bounded(f'{test.asking}: {error}')
    return error.status, '', message


def _first_other(verdicts: list[Verdict]) -> str:
  for status, _, _ in verdicts:
    if status != 'passed':
      return status
  return 'passed'
