"""What a search asks for, and what it is answered."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Generator, Sequence
from typing import Any

# How a new text is written: from one with what became of it on examples, from
# two, or in other words.
REFLECT, MERGE, REWRITE = 'reflect', 'merge', 'rewrite'


class EvaluationError(ValueError):
  """The metric raises, or returns no finite number, where it has to."""


class NothingUsableError(ValueError):
  """The model that writes new texts has written none."""


class Ended(Exception):
  """Ends a search for the reason that it carries; never leaves `play`."""


@dataclasses.dataclass(frozen=True)
class Seen:
  """What became of a text on one example; `error` if it cannot be scored."""

  score: float
  feedback: str = ''
  error: str = ''


@dataclasses.dataclass(frozen=True)
class Evaluate:
  """One text to score on one example; answered by a `Seen`."""

  text: str
  example: int


@dataclasses.dataclass(frozen=True)
class Parent:
  """A text to make another one of, with what is known of it by example."""

  text: str
  seen: tuple[tuple[int, Seen], ...] = ()


@dataclasses.dataclass(frozen=True)
class Propose:
  """One call of the model that writes; answered by a `Proposal`."""

  kind: str
  parents: tuple[Parent, ...]
  seed: int


@dataclasses.dataclass(frozen=True)
class Proposal:
  """A new text, or the reason for which a reply is none."""

  text: str
  refused: str = ''


# Yields a batch of requests of one kind, is sent the list of their answers.
Search = Generator[Sequence[Evaluate] | Sequence[Propose], Sequence[Any], Any]


def failure(seen: Sequence[Seen]) -> str:
  """Why a text cannot be scored; empty if it is."""
  return next((one.error for one in seen if one.error), '')


def total(seen: Sequence[Seen]) -> float:
  """Sum of the scores, exact, so that their order does not matter."""
  return math.fsum(one.score for one in seen)
