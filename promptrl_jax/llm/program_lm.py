"""A frozen model that answers by a program: it writes one and runs it.

Behind the `Backend` protocol, so that the embedded code model can be the task
model of an instruction task. A prompt is what the coder reads, then a line with
the arguments of the call:

  Write a function to add 3 to a number.
  assert solve(1) == 4
  ###
  def solve(x):
  Input: 5

The coder sees all but the last line, and the answer is what its program gives
for the arguments, written as Python does: `8`.
"""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Sequence
from typing import Protocol

from promptrl_jax.execution import Program, ProgramResult
from promptrl_jax.llm.backend import (
  Backend,
  BackendError,
  Completion,
  Message,
  Request,
)

INPUT_LABEL = 'Input: '
_SIGNATURE = re.compile(r'\Adef (\w+)\(.*\):\Z')
# The assertion that every call is put into: its verdict tells the value.
_EXPECTED = 'None'


class Pool(Protocol):
  """The part of an execution pool that is needed."""

  def run(self, programs: Sequence[Program]) -> list[ProgramResult]: ...


@dataclasses.dataclass(frozen=True)
class _Call:
  """A prompt, taken apart."""

  prompt: Request
  signature: str
  name: str
  arguments: str


class ProgramLM:
  """Answers with what a code model's programs return."""

  def __init__(self, coder: Backend, pool: Pool):
    """Neither coder nor pool is closed with it."""
    self._coder = coder
    self._pool = pool

  @property
  def name(self) -> str:
    return f'programs of {self._coder.name}'

  def complete(self, requests: Sequence[Request]) -> list[Completion]:
    """Answers a batch; requests that differ in arguments share a program.

    A program that raises, or runs out of time or memory, answers with nothing.

    Raises:
      ValueError: a prompt is not of the form above.
      BackendError: a program got no verdict.
    """
    calls = [_take_apart(request) for request in requests]
    prompts = list(dict.fromkeys(call.prompt for call in calls))
    written = dict(zip(prompts, self._coder.complete(prompts), strict=True))
    results = self._pool.run(
      [
        Program(
          code=call.signature + written[call.prompt].text,
          tests=(f'assert {call.name}({call.arguments}) == {_EXPECTED}',),
          entry_point=call.name,
        )
        for call in calls
      ]
    )
    return [
      dataclasses.replace(
        written[call.prompt], text=_value(result), finish_reason='stop'
      )
      for call, result in zip(calls, results, strict=True)
    ]

  def fits(self, request: Request) -> bool:
    return self._coder.fits(_take_apart(request).prompt)

  def count_tokens(self, text: str) -> int:
    return self._coder.count_tokens(text)

  def close(self) -> None:
    """Nothing of its own to free."""


def _take_apart(request: Request) -> _Call:
  text = request.messages[-1].content
  head, label, arguments = text.rpartition(f'\n{INPUT_LABEL}')
  signature = head.rpartition('\n')[2]
  match = _SIGNATURE.match(signature)
  if not label or match is None:
    raise ValueError(
      f'a prompt that is answered by a program ends in a line "def f(x):" and '
      f'a line "{INPUT_LABEL}...", got {text[-160:]!r}'
    )
  try:  # It becomes part of a test, which is trusted.
    ast.literal_eval(f'({arguments},)')
  except (ValueError, SyntaxError) as error:
    raise ValueError(
      f'input {arguments[:80]!r} is no list of Python literals: {error}'
    ) from None
  messages = (*request.messages[:-1], Message('user', head))
  prompt = dataclasses.replace(request, messages=messages)
  return _Call(prompt, signature, match[1], arguments)


def _value(result: ProgramResult) -> str:
  """What the call gave, as the verdict shows it; empty if it gave nothing."""
  if result.status in ('infra_error', 'refused'):
    raise BackendError(f'a program got no verdict: {result.message}')
  (test,) = result.tests
  if test.status == 'passed':
    return _EXPECTED
  if test.status != 'failed':
    return ''
  shown = test.message.rpartition(' returned ')[2]
  return shown.removesuffix(f', expected {_EXPECTED}')
