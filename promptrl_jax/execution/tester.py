"""The tester: the process of tests that the judge must not run itself.

Some tests cannot be split (for example a checker that takes the function as an
argument), and some cannot be trusted because a model wrote them. They run here,
confined like a candidate but separate from it. A stub replaces the program's
function: it sends each call to the judge, which asks the candidate and returns
a plain value.

Messages, numbered like those of a candidate:

  judge:  {'n', 'test': source, 'setup', 'entry_point': name}
  tester: {'n', 'call': [args, kwargs]}       any number of times; the judge
  judge:  {'n', 'value'} or {'n', 'raised': [exception class, text]}
  tester: {'n', 'ended': [status, exception class, text]}
"""

from __future__ import annotations

import builtins
import contextlib
import socket
from typing import Any, NoReturn

from promptrl_jax.execution import codec, wire

_MAX_TEXT = 200


def run(channel: socket.socket, answer_bytes: int) -> NoReturn:
  """Runs a test, then waits until the process is ended; never returns."""
  while True:
    request = wire.receive(channel)
    ended = _run_test(request, channel, answer_bytes)
    channel.sendall(wire.pack({'n': request['n'], 'ended': ended}))


def _run_test(
  request: dict[str, Any], channel: socket.socket, answer_bytes: int
) -> list[str]:
  calls, returned = 0, []  # the value of the last call

  def stub(*args: Any, **kwargs: Any) -> Any:
    nonlocal calls, returned
    call = [
      [codec.encode(arg) for arg in args],
      {name: codec.encode(value) for name, value in kwargs.items()},
    ]
    message = wire.pack({'n': request['n'], 'call': call})
    if len(message) > answer_bytes:
      raise codec.NotPlainError('arguments that are too large')
    channel.sendall(message)
    answer = wire.receive(channel)
    calls += 1
    if 'raised' in answer:
      raise _exception(*answer['raised'])
    value = codec.decode(answer['value'])
    returned = [value]
    return value

  stub.__name__ = request['entry_point']
  names = {'__name__': 'test', request['entry_point']: stub}
  with contextlib.suppress(Exception):  # It may use other parts of the program.
    setup = compile(request['setup'], '<setup>', 'exec', dont_inherit=True)
    exec(setup, names)
  try:
    exec(compile(request['test'], '<test>', 'exec', dont_inherit=True), names)
  except AssertionError as error:
    return ['failed', '', _text(error) or _without_text(returned)]
  except SyntaxError as error:
    return ['invalid', 'SyntaxError', f'the test: {_text(error)}']
  except codec.NotPlainError as error:
    return ['invalid', '', f'the test hands the program {_text(error)}']
  except BaseException as error:  # Also SystemExit: it ends the test only.
    return ['error', type(error).__name__[:_MAX_TEXT], _text(error)]
  if not calls:
    return ['invalid', '', 'the test does not call the program']
  return ['passed', '', '']


def _without_text(returned: list[Any]) -> str:
  message = 'an assertion does not hold'
  with contextlib.suppress(Exception):  # An int of more than 4,300 digits.
    message += ''.join(f'; the last call returned {v!r}' for v in returned)
  return message[:_MAX_TEXT]


def _exception(name: str, text: str) -> BaseException:
  """The program's exception if it is a builtin one, else a RuntimeError."""
  kind = getattr(builtins, name, None)
  if (
    isinstance(kind, type)
    and issubclass(kind, Exception)
    # In `all(map(check, cases))` they would end the loop, not the test.
    and not issubclass(kind, StopIteration | StopAsyncIteration)
  ):
    try:
      return kind(text)
    except TypeError:  # UnicodeDecodeError takes more than a text.
      pass
  return RuntimeError(f'{name}: {text}')


def _text(error: BaseException) -> str:
  try:
    return str(error)[:_MAX_TEXT]
  except BaseException:
    return ''
