"""What a person sees of the answers to a query, and what is known of it."""

from __future__ import annotations

import dataclasses

from promptrl_jax.evolution.population import Individual
from promptrl_jax.training.gpro.reward import Answer


@dataclasses.dataclass(frozen=True)
class Showing:
  """What a person sees, and what is known of it.

  Attributes:
    serial: number to rate it by.
    query: what was asked.
    prompts: the prompts that candidates were written under.
    candidates: all answers that could have been shown.
    logps: log-probabilities with which each was to be shown.
    scores: satisfaction that the critics expect of each.
    shown: place of the answer among the candidates.
    other: place of a second answer that is shown beside it; None: alone.
    temperature: number of the sampling temperature that was chosen.
    temperature_logp: its log-probability.
  """

  serial: int
  query: str
  prompts: tuple[Individual, ...]
  candidates: tuple[str, ...]
  logps: tuple[float, ...]
  scores: tuple[float, ...]
  shown: int
  other: int | None = None
  temperature: int = 0
  temperature_logp: float = 0.0

  @property
  def places(self) -> tuple[int, ...]:
    """Places of the one or two answers that are shown."""
    return (self.shown,) if self.other is None else (self.shown, self.other)

  @property
  def seen(self) -> list[Answer]:
    """The answers that are shown."""
    return [
      Answer(self.query, self.candidates[place], self.scores[place])
      for place in self.places
    ]

  @property
  def text(self) -> str:
    """The answer, the first one of a pair."""
    return self.candidates[self.shown]

  @property
  def prompt(self) -> Individual:
    """The prompt that it was written under."""
    return self.prompts[self.shown]

  @property
  def expected(self) -> float:
    """Satisfaction that the critics expect of it."""
    return self.scores[self.shown]
