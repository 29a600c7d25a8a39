"""Loads a program and asks it for values, on behalf of the judge.

The judge decodes a value into fresh built-in objects (`codec.py`) and takes
their `repr`. No `__repr__` or `repr` of the program is involved.
"""

from __future__ import annotations

from typing import Any

from promptrl_jax.execution import child as child_lib
from promptrl_jax.execution import conversation
from promptrl_jax.execution import output as output_lib

MAX_VALUE = 10_000  # Characters.
_BYTES_PER_BYTE = 8  # Of a message per byte of output: JSON may escape it.


class Load:
  """Loads one program, each time in a fresh process.

  Attributes:
    count: number of attempts to load the program.
    output: fields of a `CallResult`, from the first attempt.
  """

  def __init__(self, request: dict[str, Any], session: child_lib.Session):
    self._request = request
    self._session = session
    self.count = 0
    self.output: dict[str, Any] = {}

  def run(self) -> None:
    """Loads the program.

    Raises:
      Verdict: it cannot be loaded.
    """
    self.count += 1
    try:
      self._session.begin()
      answer = self._session.ask(self._request)
      if self.count == 1:
        self.output = _output_of(answer)
      conversation.check_answer(answer, self._request)
    except conversation.Verdict:
      self._session.end()
      raise
    except child_lib.LostError as error:
      self._session.end()
      message = f'while loading: {error}'
      raise conversation.Verdict(error.status, message) from None


class Evaluation:
  """One expression, evaluated in the program's process.

  Attributes:
    asking: its source, shortened for messages.
    result: its value and output, as fields of an `ExpressionResult`.
  """

  def __init__(
    self, source: str, entry_point: str | None, session: child_lib.Session
  ):
    self._request = {'evaluate': source, 'root': entry_point}
    self._session = session
    self.asking = conversation.bounded(source, conversation.MAX_CALL)
    self.result: dict[str, Any] = {}

  def run(self) -> None:
    """Returns once there is a value.

    Raises:
      Verdict: there is none.
      LostError: the program's process cannot be asked any more.
    """
    answer = self._session.ask(self._request)
    self.result = _output_of(answer)
    conversation.check_answer(answer, self._request)
    value = conversation.plain_value(answer, self.asking)
    try:
      text = repr(value)
    except ValueError:  # The decimal digits would take quadratic time.
      message = f'{self.asking} returned an int of too many digits'
      raise conversation.Verdict('invalid', message) from None
    self.result['value'] = text[:MAX_VALUE]
    self.result['value_is_cut'] = len(text) > MAX_VALUE


def output_bytes(answer_bytes: int) -> int:
  """How much output fits into an answer beside a short value."""
  return min(output_lib.MAX_BYTES, answer_bytes // _BYTES_PER_BYTE)


def _output_of(answer: dict[str, Any]) -> dict[str, Any]:
  text = answer.get('output', '')
  if not isinstance(text, str):
    raise child_lib.LostError('crash', 'malformed answer (output)')
  data = text.encode('utf-8', 'replace')
  is_cut = bool(answer.get('output_is_cut')) or len(data) > output_lib.MAX_BYTES
  output = data[: output_lib.MAX_BYTES].decode('utf-8', 'ignore')
  return {'output': output, 'output_is_cut': is_cut}
