"""Prompts that wait for a prefill, and which of them are read together.

All prompts of a prefill are padded to one length, and as many of their last
tokens are read: either all of them, or an end of one length (see
`EngineConfig.ends`) where the tokens before it are known from another prompt.
"""

from __future__ import annotations

import collections
import itertools
from collections.abc import Iterable
from typing import Generic, NamedTuple, TypeVar

from promptrl_jax.sampling.prompt_cache import (
  Beginning,
  Prompt,
  PromptCache,
  beginning_of,
)
from promptrl_jax.sampling.requests import EngineConfig

_LOOK = 8  # times as many waiting prompts are looked at as are prefilled

T = TypeVar('T')


class _Waiting(NamedTuple, Generic[T]):
  number: int
  prompt: Prompt
  item: T


class Taken(NamedTuple, Generic[T]):
  """A prompt that is read now.

  Attributes:
    item: what was handed to `WaitingPrompts.add` with it.
    beginning: its tokens before those that are read; None: all are read.
  """

  prompt: Prompt
  item: T
  beginning: Beginning | None


class WaitingPrompts(Generic[T]):
  """Queues of prompts, by the length that they are padded to."""

  def __init__(self, config: EngineConfig, known: PromptCache | None = None):
    """Args: known: prompts whose beginnings need not be read again."""
    self._config = config
    self._known = known
    self._numbers = itertools.count()
    self._queues: dict[int, collections.deque[_Waiting[T]]] = {
      length: collections.deque() for length in config.prompt_lengths
    }

  def __len__(self) -> int:
    return sum(map(len, self._queues.values()))

  def add(self, prompt: Prompt, item: T) -> None:
    queue = self._queues[self._config.padded(len(prompt))]
    queue.append(_Waiting(next(self._numbers), prompt, item))

  def take(self, most: int) -> tuple[int, int, list[Taken[T]]]:
    """Takes the prompt that waits longest, and others to read with it.

    Returns:
      The length that they are padded to, how many of the last tokens are read,
      and from 1 to `most` prompts.
    """
    length = min(
      (length for length, queue in self._queues.items() if queue),
      key=lambda length: self._queues[length][0].number,
    )
    queue, end = self._queues[length], length
    taken: list[Taken[T]] = []
    left: list[_Waiting[T]] = []
    for _ in range(min(len(queue), _LOOK * most)):
      waiting = queue.popleft()
      its_end, beginning = self._end(waiting.prompt, length)
      if not taken:
        end = its_end
      if its_end == end and (
        beginning
        or not self._should_wait(
          waiting.prompt, length, (t.prompt for t in taken)
        )
      ):
        taken.append(Taken(waiting.prompt, waiting.item, beginning))
      else:
        left.append(waiting)
      if len(taken) == most:
        break
    queue.extendleft(reversed(left))
    return length, end, taken

  def _end(self, prompt: Prompt, length: int) -> tuple[int, Beginning | None]:
    """How many last tokens must be read, and where the others are known."""
    if self._known is not None:
      for end in self._config.ends_of(length):
        count = len(prompt) - end
        place = self._known.beginning(prompt, count)
        if place is not None:
          return end, Beginning(place, count)
    return length, None

  def _should_wait(
    self, prompt: Prompt, length: int, others: Iterable[Prompt]
  ) -> bool:
    """Whether only its end must be read once one of the others is known."""
    if self._known is None:
      return False
    counts = [len(prompt) - end for end in self._config.ends_of(length)]
    return any(
      count > 0 and beginning_of(prompt, count) == beginning_of(other, count)
      for other in others
      for count in counts
    )
