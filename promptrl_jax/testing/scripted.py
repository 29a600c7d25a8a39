"""A backend for tests that answers from a function and records requests."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from promptrl_jax.llm.backend import Completion, Request


class ScriptedBackend:
  """A backend that answers each request with `answer_fn(request)`.

  Attributes:
    name: name of the model in reports.
    batches: the requests of every call, in order.
  """

  name = 'scripted'

  def __init__(
    self, answer_fn: Callable[[Request], str], prompt_limit: int = 10_000
  ):
    self.batches: list[list[Request]] = []
    self._answer_fn = answer_fn
    self._prompt_limit = prompt_limit

  @property
  def prompts(self) -> list[str]:
    """Texts of all requests so far, the messages of one joined by newlines."""
    return [
      '\n'.join(m.content for m in request.messages)
      for batch in self.batches
      for request in batch
    ]

  def complete(self, requests: Sequence[Request]) -> list[Completion]:
    self.batches.append(list(requests))
    return [Completion(self._answer_fn(r), 10, 5, 'stop') for r in requests]

  def fits(self, request: Request) -> bool:
    size = sum(self.count_tokens(m.content) for m in request.messages)
    return size <= self._prompt_limit

  def count_tokens(self, text: str) -> int:
    return len(text.split())

  def close(self) -> None:
    pass
