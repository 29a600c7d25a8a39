"""The judge: holds the tests, asks the program for values, gives the verdicts.

It never runs, unpickles or evaluates anything of a program's: it receives plain
values (`codec.py`) and runs the rest of each test on them (`conversation.py`).
"""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from typing import Any

from promptrl_jax.execution import child as child_lib
from promptrl_jax.execution import conversation, evaluation, split, wire
from promptrl_jax.execution import limits as limits_lib

# Status, class of the exception, message.
Verdict = tuple[str, str, str]
_Question = (
  conversation.Conversation | conversation.Relay | evaluation.Evaluation
)

_MAX_TIMEOUTS = 2


def serve(trainer: socket.socket, control: socket.socket, folder: str) -> None:
  """Answers requests, one at a time, until the trainer hangs up.

  A request has the fields of a `Program` or of a `Call`, an answer those of the
  result. Programs without a root of their own write into `folder`.
  """
  try:
    layers = child_lib.layers_of(control)
    watched = None if layers['root'] else folder
    wire.send(trainer, layers)
    while True:
      request = wire.receive(trainer)
      limits = limits_lib.Limits(**request['limits'])
      session = child_lib.Session(control, trainer, limits, folder=watched)
      start = time.monotonic()
      try:
        if 'expressions' in request:
          answer = _evaluate(request, session, limits)
        else:
          tester = child_lib.Session(
            control, trainer, limits, 'tester', watched
          )
          answer = _judge(request, session, tester)
      finally:
        session.end()
      answer['cpu_s'] = session.cpu_s
      answer['wall_s'] = time.monotonic() - start
      wire.send(trainer, answer)
  except (EOFError, ConnectionError, child_lib.WorkerError):
    return  # The trainer or the zygote is gone; the worker ends.


def _judge(
  program: dict[str, Any],
  session: child_lib.Session,
  tester: child_lib.Session,
) -> dict[str, Any]:
  request = {'code': program['code'], 'setup': program['setup']}
  tests = [
    _planned(test, program, session, tester) for test in program['tests']
  ]
  load = evaluation.Load(request, session)
  status, message, verdicts = _run_all(load, tests, session)
  return {
    'status': status or _first_other(verdicts),
    'message': message,
    'tests': verdicts,
  }


def _evaluate(
  call: dict[str, Any],
  session: child_lib.Session,
  limits: limits_lib.Limits,
) -> dict[str, Any]:
  request = {
    'code': call['code'],
    'setup': call['setup'],
    'output_bytes': evaluation.output_bytes(limits.answer_kb * 1024),
  }
  load = evaluation.Load(request, session)
  evaluations = [
    evaluation.Evaluation(source, call['entry_point'], session)
    for source in call['expressions']
  ]
  status, message, verdicts = _run_all(load, evaluations, session)
  return {
    'status': _ok_if_passed(status or _first_other(verdicts)),
    'message': message,
    **load.output,
    'expressions': [
      {
        'status': _ok_if_passed(verdict),
        'error_type': error_type,
        'message': text,
        **asked.result,
      }
      for asked, (verdict, error_type, text) in zip(
        evaluations, verdicts, strict=True
      )
    ],
  }


def _run_all(
  load: evaluation.Load,
  questions: Sequence[_Question | Verdict],
  session: child_lib.Session,
) -> tuple[str, str, list[Verdict]]:
  """Asks one question after the other; loads the program where it has to.

  A verdict stands for a question that cannot be asked. Returns the status and
  message of the program as a whole, '' if there are none, and all verdicts.
  """
  verdicts: list[Verdict] = []
  timeouts = 0
  for question in questions:
    if isinstance(question, tuple):
      verdicts.append(question)
      continue
    if timeouts >= _MAX_TIMEOUTS or session.is_spent():
      verdicts.append(('not_run', '', 'the program has used up its time'))
      continue
    try:
      if not session.is_alive():
        load.run()
      verdict = _ask(question, session)
    except conversation.Verdict as error:
      verdict = error.verdict
      is_syntax_error = verdict[0] == 'syntax_error'
      if is_syntax_error:
        verdict = ('error', *verdict[1:])
      if load.count == 1:  # It would fail again: one verdict for all.
        rest = [q if isinstance(q, tuple) else verdict for q in questions]
        return ('syntax_error' if is_syntax_error else ''), verdict[2], rest
    verdicts.append(verdict)
    timeouts += verdict[0] == 'timeout'
  return '', '', verdicts


def _planned(
  test: str,
  program: dict[str, Any],
  session: child_lib.Session,
  tester: child_lib.Session,
) -> _Question | Verdict:
  """A test that is ready to run; a verdict if it cannot be judged."""
  setup, entry_point = program['setup'], program['entry_point']
  relay = conversation.Relay(test, setup, entry_point or '', session, tester)
  try:
    if program['isolate_tests']:
      if not entry_point:
        raise split.CannotSplitError('an isolated test needs an entry_point')
      return relay
    plan = split.split(test, setup, entry_point)
    return conversation.Conversation(plan, session)
  except split.CannotSplitError as error:
    if isinstance(error, split.NeedsTesterError) and entry_point:
      return relay
    return 'invalid', '', conversation.bounded(str(error))


def _ask(question: _Question, session: child_lib.Session) -> Verdict:
  try:
    session.start_clock()
    question.run()
    return 'passed', '', ''
  except conversation.Verdict as error:
    if error.verdict[0] == 'memory':
      session.end()  # The next question gets a process that has its memory.
    return error.verdict
  except child_lib.LostError as error:
    session.end()
    message = conversation.bounded(f'{question.asking}: {error}')
    return error.status, '', message


def _first_other(verdicts: list[Verdict]) -> str:
  statuses = (status for status, _, _ in verdicts)
  return next((s for s in statuses if s != 'passed'), 'passed')


def _ok_if_passed(status: str) -> str:
  return 'ok' if status == 'passed' else status
