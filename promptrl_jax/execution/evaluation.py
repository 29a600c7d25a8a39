"""Loads a program and asks it for values, on behalf of the judge.

The value of an expression reaches the judge as the values of tests do: the
program's process encodes it as plain data, the judge decodes it into fresh
built-in objects (`codec.py`) and takes their `repr`. No `__repr__` or `repr` of
the program is involved.
"""

from __future__ import annotations

from typing import Any

from promptrl_jax.execution import child as child_lib
from promptrl_jax.execution import conversation
from promptrl_jax.execution import output as output_lib

MAX_VALUE = 10_000  # Characters.
_MAX_SOURCE = 80
_BYTES_PER_BYTE = 8  # Of a message per byte of output: JSON may escape it.


class Load:
  """Loads one program, each time in a fresh process.

  Attributes:
    count: number of attempts to load the program.
    output: standard output of the first attempt, and whether it is cut.
  """

  def __init__(self, request: dict[str, Any], session: child_lib.Session):
    self._request = request
    self._session = session
    self.count = 0
    self.output = ('', False)

  def run(self) -> None:
    """Returns once the program is loaded.

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
    value: `repr` of its value; None before there is one.
    value_is_cut: whether `value` is only the beginning.
    output: what was written to standard output meanwhile, and whether it is
      cut.
  """

  def __init__(
    self, source: str, entry_point: str | None, session: child_lib.Session
  ):
    self._request = {'evaluate': source, 'root': entry_point}
    self._session = session
    self.asking = conversation.bounded(source, _MAX_SOURCE)
    self.value: str | None = None
    self.value_is_cut = False
    self.output = ('', False)

  def run(self) -> None:
    """Returns once there is a value.

    Raises:
      Verdict: there is none.
      LostError: the program's process cannot be asked any more.
    """
    answer = self._session.ask(self._request)
    self.output = _output_of(answer)
    conversation.check_answer(answer, self._request)
    value = conversation.plain_value(answer, self.asking)
    try:
      text = repr(value)
    except ValueError:  # The decimal digits would take quadratic time.
      message = f'{self.asking} returned an int of too many digits'
      raise conversation.Verdict('invalid', message) from None
    self.value_is_cut = len(text) > MAX_VALUE
    self.value = text[:MAX_VALUE]


def output_bytes(answer_bytes: int) -> int:
  """How much output fits into an answer beside a short value."""
  return min(output_lib.MAX_BYTES, answer_bytes // _BYTES_PER_BYTE)


def _output_of(answer: dict[str, Any]) -> tuple[str, bool]:
  text = answer.get('output', '')
  if not isinstance(text, str):
    raise child_lib.LostError('crash', 'malformed answer (output)')
  data = text.encode('utf-8', 'replace')
  is_cut = bool(answer.get('output_is_cut')) or len(data) > output_lib.MAX_BYTES
  return data[: output_lib.MAX_BYTES].decode('utf-8', 'ignore'), is_cut
