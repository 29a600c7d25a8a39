"""The protocol that every language model is reached through.

A strategy builds `Request`s and gets `Completion`s back in the same order,
whether the model runs in this process or behind HTTP. One call carries the
whole batch, so that a backend may run it at once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Protocol


class BackendError(RuntimeError):
  """The system failed: never scored as a failure of the model."""


@dataclasses.dataclass(frozen=True)
class Message:
  """One turn of a conversation.

  Attributes:
    role: `system`, `user` or `assistant`.
    content: the text of the turn.
  """

  role: str
  content: str


@dataclasses.dataclass(frozen=True)
class Request:
  """One completion that is asked for; hashable, equal by content.

  Attributes:
    messages: the conversation so far, oldest first.
    temperature: 0 is greedy, and then the seed has no effect.
    top_p: nucleus mass in (0, 1].
    seed: tells samples of one prompt apart: ask for n samples with n seeds.
    max_tokens: most tokens to generate.
    stop: strings that end the completion; they are not part of its text.
  """

  messages: tuple[Message, ...]
  temperature: float = 0.0
  top_p: float = 1.0
  seed: int = 0
  max_tokens: int = 128
  stop: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Completion:
  """What a model answered and what it cost.

  Attributes:
    text: the answer, without stop strings.
    prompt_tokens: tokens of the rendered prompt.
    completion_tokens: tokens generated.
    finish_reason: `stop`, or `length` if `max_tokens` cut the answer.
  """

  text: str
  prompt_tokens: int
  completion_tokens: int
  finish_reason: str


class Backend(Protocol):
  """A language model."""

  @property
  def name(self) -> str:
    """What a report calls the model."""
    ...

  def complete(self, requests: Sequence[Request]) -> list[Completion]:
    """Answers a batch, in the order of the requests.

    Raises:
      BackendError: some request got no answer from a working model.
    """
    ...

  def fits(self, request: Request) -> bool:
    """Whether prompt and `max_tokens` together fit the context window."""
    ...

  def count_tokens(self, text: str) -> int:
    """Number of tokens of a text, for templates that must truncate."""
    ...

  def close(self) -> None:
    """Frees what the backend holds; calling it twice is fine."""
    ...
