"""Runs one test in the judge, which asks the program for the values it needs.

The names `_value_`, `_stub_`, `_check_` and `_equal_`, which `split.py` writes
into a test, are methods here.
"""

from __future__ import annotations

import json
from typing import Any, NoReturn

from promptrl_jax.execution import child as child_lib
from promptrl_jax.execution import codec, split, syntax
from promptrl_jax.execution import names as names_lib

_MAX_MESSAGE = 200
MAX_CALL = 80
_MAX_VALUE = 50


class Verdict(BaseException):
  """Ends a test with its verdict; no `except Exception` can catch it."""

  def __init__(self, status: str, message: str, error_type: str = ''):
    self.verdict = (status, error_type, bounded(message))


class Conversation:
  """One test of one program, whose statements the judge runs.

  Attributes:
    asking: source of the latest request to the program, for messages.
  """

  def __init__(self, plan: split.Plan, session: child_lib.Session):
    self._plan = plan
    self._session = session
    self._returned: list[tuple[str, Any]] = []  # In the current assertion.
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
        bound |= {n: self._run_local(code, scope) for n, code in step.items}
        request = {'run': step.remote, 'names': _encode_all(bound)}
        answer_to(self._session, request)
      if step.local is not None:
        self._run_local(step.local, scope)
    if not self._checked or not self._asked:
      raise Verdict('invalid', 'no assertion on the program was reached')

  def _run_local(self, code: Any, scope: dict[str, Any]) -> Any:
    try:
      return eval(code, scope)
    except (child_lib.LostError, child_lib.WorkerError):
      raise
    except MemoryError:
      raise Verdict('invalid', 'the comparison needs too much memory') from None
    except Exception as error:
      message = f'while comparing: {error}{self._what_returned()}'
      raise Verdict('error', message, type(error).__name__) from None

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
    self.asking = bounded(source, MAX_CALL)
    answer = answer_to(self._session, {**request, 'root': root})
    self._asked += 1
    value = plain_value(answer, self.asking)
    if isinstance(value, codec.Drained):
      self._drained = True
    self._returned = [*self._returned, (self.asking, value)]
    return value

  def _check(self, index: int, value: Any) -> None:
    if not value:
      source = bounded(self._plan.checks[index], MAX_CALL)
      self._fail(f'{source} does not hold{self._what_returned()}')
    self._holds()

  def _equal(self, index: int, left: Any, right: Any) -> None:
    if left == right:
      return self._holds()
    if len(self._returned) == 1:
      call, value = self._returned[0]
      for side, other in ((left, right), (right, left)):
        if side is value:
          self._fail(
            f'{call} returned {_shown(side)}, expected {_shown(other)}'
          )
    source = bounded(self._plan.checks[index], MAX_CALL)
    self._fail(f'{source} does not hold: {_shown(left)} != {_shown(right)}')

  def _holds(self) -> None:
    self._checked += 1
    self._returned = []
    self._drained = False

  def _fail(self, message: str) -> NoReturn:
    # An iterator equals nothing, whatever it yields.
    raise Verdict('invalid' if self._drained else 'failed', message)

  def _what_returned(self) -> str:
    if not self._returned:
      return ''
    call, value = self._returned[-1]
    return f'; {call} returned {_shown(value)}'


class Relay:
  """One test in a tester process (`tester.py`).

  The judge passes its calls to the program.

  Attributes:
    asking: source of the latest request to the program, for messages.
  """

  def __init__(
    self,
    test: str,
    setup: str,
    entry_point: str,
    session: child_lib.Session,
    tester: child_lib.Session,
  ):
    self._test = {'test': test, 'setup': setup, 'entry_point': entry_point}
    self._session = session
    self._tester = tester
    self.asking = 'the test'

  def run(self) -> None:
    """Returns if the test passes, and raises the verdict otherwise."""
    request = {**self._test, 'test': syntax.dedented(self._test['test'])}
    try:
      self._tester.begin()
      message = self._of_tester(self._tester.ask, request)
      while 'call' in message:
        reply = self._call(message['call'])
        message = self._of_tester(self._tester.answer, reply)
    finally:
      self._tester.end()  # No test may change the process of the next one.
    ended = message.get('ended')
    if not isinstance(ended, list) or len(ended) != 3:
      raise Verdict('invalid', 'the test: malformed end')
    status, error_type, text = (str(part)[:_MAX_MESSAGE] for part in ended)
    if status != 'passed':
      known = status if status in ('failed', 'error') else 'invalid'
      raise Verdict(known, text, bounded(error_type, MAX_CALL))

  def _of_tester(self, ask: Any, message: dict[str, Any]) -> dict[str, Any]:
    try:
      return ask(message)
    except child_lib.LostError as error:
      status = 'timeout' if error.status == 'timeout' else 'invalid'
      raise Verdict(status, f'the test: {error}') from None

  def _call(self, call: Any) -> dict[str, Any]:
    match call:
      case [list() as args, dict() as kwargs]:
        name = self._test['entry_point']
      case _:
        raise Verdict('invalid', 'the test: malformed call')
    self.asking = bounded(f'{name}({json.dumps(args)[1:-1]})', MAX_CALL)
    request = {'call': name, 'root': name, 'args': args, 'kwargs': kwargs}
    try:
      answer = answer_to(self._session, request)
    except Verdict as raised:
      status, error_type, text = raised.verdict
      if status != 'error':
        raise
      return {'raised': [error_type, text]}
    plain_value(answer, self.asking)
    return {'value': answer['value']}


def answer_to(session: child_lib.Session, request: dict[str, Any]) -> Any:
  """The answer to one request; raises as `check_answer` does."""
  answer = session.ask(request)
  check_answer(answer, request)
  return answer


def check_answer(answer: dict[str, Any], request: dict[str, Any]) -> None:
  """Returns if an answer reports no error.

  Raises:
    Verdict: the program raised an exception or ran out of memory.
    LostError: the report is not one that a candidate writes.
  """
  if 'error' not in answer:
    return
  try:
    status, error_type, text, where = (str(part) for part in answer['error'])
  except (TypeError, ValueError):
    raise child_lib.LostError('crash', 'malformed answer') from None
  if status not in ('error', 'memory') and (
    status != 'syntax_error' or 'code' not in request
  ):
    raise child_lib.LostError('crash', 'malformed answer')
  message = f'in the setup: {text}' if where == 'setup' else text
  raise Verdict(status, message, bounded(error_type, MAX_CALL))


def plain_value(answer: dict[str, Any], asking: str) -> Any:
  """Decodes the value that a program returned.

  Raises:
    Verdict: it is not plain data.
    LostError: no candidate writes such an answer.
  """
  if 'not_plain' in answer:
    what = str(answer['not_plain'])[:_MAX_MESSAGE]
    raise Verdict('invalid', f'{asking} returned {what}')
  if 'value' not in answer:
    raise child_lib.LostError('crash', 'malformed answer (no value)')
  try:
    return codec.decode(answer['value'])
  except codec.MalformedError as error:
    raise child_lib.LostError('crash', f'malformed answer ({error})') from None


def _encode_all(values: dict[Any, Any]) -> dict[Any, Any]:
  try:
    return {name: codec.encode(value) for name, value in values.items()}
  except codec.NotPlainError as error:
    message = f'the test hands the program {error}'
    raise Verdict('invalid', message) from None


def _shown(value: Any) -> str:
  try:
    text = repr(value)
  except (ValueError, RecursionError):  # An int of more than 4,300 digits.
    text = f'a huge {type(value).__name__}'
  return bounded(text, _MAX_VALUE)


def bounded(text: str, size: int = _MAX_MESSAGE) -> str:
  """Shortens a text to `size` characters that UTF-8 can encode."""
  text = text if len(text) <= size else f'{text[: size - 3]}...'
  return text.encode('utf-8', 'backslashreplace').decode()[:size]
