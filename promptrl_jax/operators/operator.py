"""What an operator is: one way to change a prompt before the coder is asked."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Generator
from typing import Any

from promptrl_jax.llm.ask import Tools
from promptrl_jax.operators.episode import Episode
from promptrl_jax.prompts import templates
from promptrl_jax.registry import Registry, check_call


@dataclasses.dataclass(frozen=True)
class Question:
  """What an operator has the coder asked.

  `resample` draws a new sample although the prompt may be asked for the first
  time.
  """

  prompt: templates.CoderPrompt
  resample: bool = False


# A plain function, or a generator that yields `Ask` by `tools.ask`.
ApplyFn = Callable[
  [Episode, Tools], Question | Generator[Any, Any, Question | None] | None
]


@dataclasses.dataclass(frozen=True)
class Operator:
  """One action of the prompt-editing environment.

  Attributes:
    name: stands in configs, traces and tables.
    calls: language-model calls of one use, that of the coder included.
    apply: edits the episode and says what the coder is asked; None ends the
      episode with the best program so far.
    available: whether it would do anything now; the budget is checked apart.
    rival: what it is called as a strategy that repeats it, its own name by
      default; empty if that would be no strategy.
  """

  name: str
  calls: int
  apply: ApplyFn
  available: Callable[[Episode], bool] = lambda episode: True
  rival: str | None = None

  def __post_init__(self):
    if not isinstance(self.calls, int) or self.calls < 0:
      raise ValueError(
        f'operator {self.name!r}: calls={self.calls!r}, expected the number of '
        'language-model calls of one use, 0 or more'
      )
    _check_arguments(self.name, 'apply', self.apply, ('episode', 'tools'))
    _check_arguments(self.name, 'available', self.available, ('episode',))
    if self.rival is None:
      object.__setattr__(self, 'rival', self.name)

  def is_open(self, episode: Episode) -> bool:
    """Whether the episode can take this operator: it acts and is paid for."""
    if episode.done:
      return self.name == FALLBACK
    return self.calls <= episode.budget_left and self.available(episode)


def _check_arguments(
  name: str, field: str, function: Any, expected: tuple[str, ...]
) -> None:
  if not callable(function):
    raise TypeError(
      f'operator {name!r}: {field}={function!r}, expected a function of '
      f'({", ".join(expected)})'
    )
  check_call(f'operator {name!r}: {field}', function, *expected)


def _check(name: str, operator: Any) -> None:
  if not isinstance(operator, Operator):
    raise TypeError(
      f'operator {name!r} is a {type(operator).__name__}: expected an Operator'
    )
  if operator.name != name:
    raise ValueError(
      f'operator {operator.name!r} is registered as {name!r}: expected one name'
    )


# Taken in the place of an operator that is not available.
FALLBACK = 'keep'
OPERATORS: Registry[Operator] = Registry('operator', _check)


def register(operator: Operator) -> Operator:
  """Makes an operator known by its name; returns it."""
  return OPERATORS.register(operator.name, operator)
