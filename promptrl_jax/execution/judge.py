"""The judge: holds the tests, asks the program for values, gives the verdicts.

It never runs, unpickles or evaluates anything of a program's; it is given plain
values (`codec.py`) and runs the rest of each test on them (`split.py`).
"""

from __future__ import annotations

import socket
import time
from typing import Any, NoReturn

from promptrl_jax.execution import child as child_lib
from promptrl_jax.execution import codec
from promptrl_jax.execution import limits as limits_lib
from promptrl_jax.execution import names as names_lib
from promptrl_jax.execution import split
from promptrl_jax.execution import wire

Verdict = tuple[str, str, str]  # Status, class of the exception, message.

_MAX_MESSAGE = 200
_MAX_CALL = 80
_MAX_VALUE = 50
_MAX_TIMEOUTS = 2


class _Verdict(BaseException):
  """Ends a test; no `except Exception` in a test can catch it."""

  def __init__(self, status: str, message: str, error_type: str = ''):
    self.verdict = (status, error_type, _bounded(message, _MAX_MESSAGE))


def serve(trainer: socket.socket, control: socket.socket) -> None:
  """Judges programs, one at a time, until the trainer hangs up.

  Args:
    trainer: stream socket; a request has the fields of `Program`, an answer
      `status`, `message`, `tests` (verdicts), `cpu_s` and `wall_s`.
    control: sequenced-packet socket to the zygote.
  """
  try:
    wire.send(trainer, 'ready')
    while True:
      wire.send(trainer, _judge(wire.receive(trainer), trainer, control))
  except (EOFError, ConnectionError, child_lib.WorkerError):
    return  # The trainer or the zygote is gone; the worker ends.


def _judge(
  program: dict[str, Any], trainer: socket.socket, control: socket.socket
) -> dict[str, Any]:
  start = time.monotonic()
  session = child_lib.Session(
    control, trainer, limits_lib.Limits(**program['limits'])
  )
  try:
    status, message, verdicts = _run_tests(program, session)
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
  program: dict[str, Any], session: child_lib.Session
) -> tuple[str, str, list[Verdict]]:
  plans = [_plan(test, program) for test in program['tests']]
  verdicts: list[Verdict] = []
  timeouts = 0
  loads = 0
  for plan in plans:
    if not isinstance(plan, split.Plan):
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
        rest = [v if not isinstance(v, split.Plan) else verdict for v in plans]
        return ('syntax_error' if syntax_error else ''), verdict[2], rest
    else:
      verdict = _run_test(plan, session)
    verdicts.append(verdict)
    timeouts += verdict[0] == 'timeout'
  return '', '', verdicts


def _plan(test: str, program: dict[str, Any]) -> split.Plan | Verdict:
  try:
    return split.split(test, program['setup'], program['entry_point'])
  except split.CannotSplitError as error:
    return 'invalid', '', _bounded(str(error), _MAX_MESSAGE)


def _load(
  program: dict[str, Any], session: child_lib.Session
) -> Verdict | None:
  """Loads the program in a fresh process; None if that went well."""
  try:
    session.begin()
    request = {'code': program['code'], 'setup': program['setup']}
    _answer(session, request)
    return None
  except _Verdict as error:
    verdict = error.verdict
  except child_lib.LostError as error:
    verdict = (error.status, '', f'while loading: {error}')
  session.end()
  return verdict


def _run_test(plan: split.Plan, session: child_lib.Session) -> Verdict:
  conversation = _Conversation(plan, session)
  try:
    session.start_clock()
    conversation.run()
    return 'passed', '', ''
  except _Verdict as error:
    return error.verdict
  except child_lib.LostError as error:
    session.end()
    what = conversation.asking
    return error.status, '', _bounded(f'{what}: {error}', _MAX_MESSAGE)


class _Conversation:
  """One test: its statements, with questions to the program in between."""

  def __init__(self, plan: split.Plan, session: child_lib.Session):
    self._plan = plan
    self._session = session
    self._returned: list[tuple[str, Any]] = []  # In the present assertion.
    self._drained = False
    self._asked = 0
    self._checked = 0
    self.asking = 'the test'

  def run(self) -> None:
    """Returns if the test passes, and raises the verdict otherwise."""
    scope = {
      '__builtins__': names_lib.judge_builtins(),
      '_value_': self._value,
      '_stub_': self._stub,
      '_check_': self._check,
      '_equal_': self._equal,
    }
    for step in self._plan.steps:
      if step.remote is not None:
        self.asking = step.remote
        bound = {name: scope[name] for name in step.names if name in scope}
        request = {'run': step.remote, 'names': _encode_all(bound)}
        _answer(self._session, request)
      if step.local is not None:
        self._run_local(step.local, scope)
    if not self._checked or not self._asked:
      raise _Verdict('invalid', 'no assertion on the program was reached')

  def _run_local(self, code: Any, scope: dict[str, Any]) -> None:
    try:
      exec(code, scope)
    except (child_lib.LostError, child_lib.WorkerError):
      raise
    except MemoryError:
      raise _Verdict('invalid', 'the comparison needs too much memory') from None
    except Exception as error:
      message = f'while comparing: {error}{self._what_returned()}'
      raise _Verdict('error', message, type(error).__name__) from None

  def _value(self, index: int, bound: dict[str, Any]) -> Any:
    call = self._plan.calls[index]
    request = {'value_of': call.source, 'names': _encode_all(bound)}
    values = ', '.join(f'{name} = {_shown(bound[name])}' for name in bound)
    source = f'{call.source} with {values}' if values else call.source
    return self._decoded(source, call.root, request)

  def _stub(self, index: int) -> Any:
    call = self._plan.calls[index]

    def ask(*args: Any, **kwargs: Any) -> Any:
      parts = [_shown(arg) for arg in args]
      parts += [f'{name}={_shown(arg)}' for name, arg in kwargs.items()]
      request = {
        'call': call.source,
        'args': list(_encode_all(dict(enumerate(args))).values()),
        'kwargs': _encode_all(kwargs),
      }
      source = f'{call.source}({", ".join(parts)})'
      return self._decoded(source, call.root, request)

    return ask

  def _decoded(self, source: str, root: str, request: dict[str, Any]) -> Any:
    self.asking = _bounded(source, _MAX_CALL)
    answer = _answer(self._session, {**request, 'root': root})
    self._asked += 1
    if 'not_plain' in answer:
      what = str(answer['not_plain'])[:_MAX_MESSAGE]
      raise _Verdict('invalid', f'{self.asking} returned {what}')
    if 'value' not in answer:
      raise child_lib.LostError('crash', 'malformed answer (no value)')
    try:
      value = codec.decode(answer['value'])
    except codec.MalformedError as error:
      raise child_lib.LostError('crash', f'malformed answer ({error})') from None
    if isinstance(value, codec.Drained):
      self._drained = True
    self._returned = [*self._returned, (self.asking, value)]
    return value

  def _check(self, index: int, value: Any) -> None:
    if not value:
      source = _bounded(self._plan.checks[index], _MAX_CALL)
      self._fail(f'{source} does not hold{self._what_returned()}')
    self._holds()

  def _equal(self, index: int, left: Any, right: Any) -> None:
    if left == right:
      return self._holds()
    if len(self._returned) == 1:
      call, value = self._returned[0]
      for side, other in ((left, right), (right, left)):
        if side is value:
          self._fail(f'{call} returned {_shown(side)}, expected {_shown(other)}')
    source = _bounded(self._plan.checks[index], _MAX_CALL)
    self._fail(f'{source} does not hold: {_shown(left)} != {_shown(right)}')

  def _holds(self) -> None:
    self._checked += 1
    self._returned = []
    self._drained = False

  def _fail(self, message: str) -> NoReturn:
    # An iterator equals nothing, whatever it yields.
    raise _Verdict('invalid' if self._drained else 'failed', message)

  def _what_returned(self) -> str:
    if not self._returned:
      return ''
    call, value = self._returned[-1]
    return f'; {call} returned {_shown(value)}'


def _answer(session: child_lib.Session, request: dict[str, Any]) -> Any:
  """The answer to one request.

  Raises:
    _Verdict: the program raised an exception or ran out of memory.
  """
  answer = session.ask(request)
  if 'error' not in answer:
    return answer
  try:
    status, error_type, text, where = (str(part) for part in answer['error'])
  except (TypeError, ValueError):
    raise child_lib.LostError('crash', 'malformed answer') from None
  if status not in ('error', 'memory', 'syntax_error'):
    raise child_lib.LostError('crash', 'malformed answer')
  message = f'in the setup: {text}' if where == 'setup' else text
  raise _Verdict(status, message, error_type[:_MAX_CALL])


def _encode_all(values: dict[Any, Any]) -> dict[Any, Any]:
  try:
    return {name: codec.encode(value) for name, value in values.items()}
  except codec.NotPlainError as error:
    message = f'the test hands the program {error}'
    raise _Verdict('invalid', message) from None


def _first_other(verdicts: list[Verdict]) -> str:
  for status, _, _ in verdicts:
    if status != 'passed':
      return status
  return 'passed'


def _shown(value: Any) -> str:
  try:
    text = repr(value)
  except (ValueError, RecursionError):  # An int of more than 4,300 digits.
    text = f'a huge {type(value).__name__}'
  return _bounded(text, _MAX_VALUE)


def _bounded(text: str, size: int) -> str:
  text = text if len(text) <= size else f'{text[: size - 3]}...'
  return text.encode('utf-8', 'backslashreplace').decode()[:size]
