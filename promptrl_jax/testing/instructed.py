"""A scripted model that follows instructions: one answer for each question.

The questions of strategies are told apart by their system messages, so that a
test says what is answered to a request for tests, a reflection, other words or
a program, and reads from `asked` in which order they came.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from promptrl_jax.llm.backend import Completion, Request
from promptrl_jax.prompts import generated_tests, reflection, wording
from promptrl_jax.testing.scripted import ScriptedBackend

# The request and how many of its kind came before.
AnswerFn = Callable[[Request, int], str]
KINDS = ('tests', 'reflect', *wording.INSTRUCTIONS, 'program')


def kind_of(request: Request) -> str:
  """Returns which of `KINDS` a request is."""
  system = request.messages[0].content
  if system == generated_tests.SYSTEM:
    return 'tests'
  if system == reflection.SYSTEM:
    return 'reflect'
  for operator, instruction in wording.INSTRUCTIONS.items():
    if system.startswith(instruction):
      return operator
  return 'program'


class InstructedBackend(ScriptedBackend):
  """Answers by kind of question.

  Attributes:
    asked: kind and request of every call, in order.
    cut: kinds whose answers end at the token limit.
  """

  def __init__(self, answers: dict[str, AnswerFn], cut: Sequence[str] = ()):
    """Answers with `answers`; a kind without one is answered by nonsense."""
    super().__init__(self._reply)
    self.asked: list[tuple[str, Request]] = []
    self.cut = tuple(cut)
    self._answers = answers

  def of_kind(self, kind: str) -> list[Request]:
    """Returns the requests of one kind, in order."""
    return [request for other, request in self.asked if other == kind]

  def complete(self, requests: Sequence[Request]) -> list[Completion]:
    return [
      Completion(
        completion.text,
        completion.prompt_tokens,
        completion.completion_tokens,
        'length' if kind_of(request) in self.cut else 'stop',
      )
      for request, completion in zip(
        requests, super().complete(requests), strict=True
      )
    ]

  def _reply(self, request: Request) -> str:
    kind = kind_of(request)
    number = len(self.of_kind(kind))
    self.asked.append((kind, request))
    answer_fn = self._answers.get(kind, lambda request, number: 'Quite so!')
    return answer_fn(request, number)
