"""A frozen model that answers by a program: it writes one and runs it.

Behind the `Backend` protocol, so that the embedded code model can be the task
model of an instruction task. A prompt is what the coder reads, then a line with
the arguments of the call:

  Write a function to add 3 to a number.
  assert solve(1) == 4
  ###
  def solve(x):
  Input: 5

The coder sees all but the last line, in its own message format, and the answer
is what its program gives for the arguments, written as Python does: `8`.
"""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Sequence
from typing import Protocol

from promptrl_jax.execution import Call, CallResult
from promptrl_jax.llm.backend import (
  Backend,
  BackendError,
  Completion,
  Message,
  Request,
)
from promptrl_jax.prompts.template import CoderPrompt, Template
from promptrl_jax.prompts.templates import PLAIN

INPUT_LABEL = 'Input: '
_SEPARATOR = '\n###\n'
_SIGNATURE = re.compile(r'\Adef (\w+)\(.*\):\Z')


class Pool(Protocol):
  """The part of an execution pool that `ProgramLM` needs."""

  def evaluate(self, calls: Sequence[Call]) -> list[CallResult]: ...


@dataclasses.dataclass(frozen=True)
class _ParsedPrompt:
  """What the coder is asked, and the name and arguments of the call."""

  request: Request
  prompt: CoderPrompt
  name: str
  arguments: str


class ProgramLM:
  """Answers with what a code model's programs return."""

  def __init__(self, coder: Backend, pool: Pool, template: Template = PLAIN):
    """Neither coder nor pool is closed with it; `template` is the coder's."""
    self._coder = coder
    self._pool = pool
    self._template = template

  @property
  def name(self) -> str:
    return f'programs of {self._coder.name}'

  def complete(self, requests: Sequence[Request]) -> list[Completion]:
    """Answers a batch; requests that differ in arguments share a program.

    The answer is empty if the program raises an exception, runs out of time or
    memory, or returns something that is not plain data.
    """
    parsed = [self._parse(request) for request in requests]
    asked = list(dict.fromkeys(p.request for p in parsed))
    replies = dict(zip(asked, self._coder.complete(asked), strict=True))
    results = self._pool.evaluate(
      [
        Call(
          code=self._template.program(p.prompt, replies[p.request].text),
          expressions=(f'{p.name}({p.arguments})',),
          entry_point=p.name,
        )
        for p in parsed
      ]
    )
    return [
      dataclasses.replace(
        replies[p.request], text=_value(result), finish_reason='stop'
      )
      for p, result in zip(parsed, results, strict=True)
    ]

  def fits(self, request: Request) -> bool:
    return self._coder.fits(self._parse(request).request)

  def count_tokens(self, text: str) -> int:
    return self._coder.count_tokens(text)

  def close(self) -> None:
    """Nothing of its own to free."""

  def _parse(self, request: Request) -> _ParsedPrompt:
    text = request.messages[-1].content
    head, label, arguments = text.rpartition(f'\n{INPUT_LABEL}')
    body, _, signature = head.rpartition(_SEPARATOR)
    match = _SIGNATURE.match(signature)
    if not label or match is None:
      raise ValueError(
        'a prompt that is answered by a program ends in the lines "###", '
        f'"def f(x):" and "{INPUT_LABEL}...", got {text[-160:]!r}'
      )
    try:  # The arguments are data: they must not run anything.
      ast.literal_eval(f'({arguments},)')
    except (ValueError, SyntaxError) as error:
      raise ValueError(
        f'input {arguments[:80]!r} is no list of Python literals: {error}'
      ) from None
    prompt = _prompt(body, signature)
    written = [Message(*m) for m in self._template.coder(prompt)]
    asked = dataclasses.replace(
      request,
      messages=(*request.messages[:-1], *written),
      stop=(*request.stop, *self._template.stop),
    )
    return _ParsedPrompt(asked, prompt, match[1], arguments)


def _prompt(body: str, signature: str) -> CoderPrompt:
  """The task in words and, below, its assertions."""
  lines = body.split('\n')
  count = len(lines)
  while count and lines[count - 1].startswith('assert '):
    count -= 1
  return CoderPrompt('\n'.join(lines[:count]), signature, tuple(lines[count:]))


def _value(result: CallResult) -> str:
  """The value of the call as text, shortened if it is long; '' without one."""
  if result.status in ('infra_error', 'refused'):
    raise BackendError(f'a program was not run: {result.message}')
  return result.expressions[0].value or ''
