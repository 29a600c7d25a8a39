"""When a population evolves, and when it has stopped getting better."""

from __future__ import annotations

import dataclasses
import math


@dataclasses.dataclass(frozen=True)
class ScheduleConfig:
  """Settings of the schedule.

  Attributes:
    every: episodes from one generation to the next.
    patience: generations without an improvement after which evolution stops; 0
      for never.
    min_improvement: a generation is an improvement if its best fitness exceeds
      that of the last improvement by more than this.
  """

  every: int = 5
  patience: int = 5
  min_improvement: float = 0.0

  def __post_init__(self):
    if self.every < 1:
      raise ValueError(f'every={self.every}: expected 1 episode or more')
    if self.patience < 0 or not self.min_improvement >= 0:
      raise ValueError(
        f'patience={self.patience}, min_improvement={self.min_improvement}: '
        'expected 0 or more of both'
      )


@dataclasses.dataclass(frozen=True)
class Schedule:
  """Where an evolution stands; changes make another one.

  Attributes:
    config: its settings.
    episodes: that there were.
    best: the fitness that the next improvement has to exceed.
    flat: generations since the last improvement.
  """

  config: ScheduleConfig = ScheduleConfig()
  episodes: int = 0
  best: float = -math.inf
  flat: int = 0

  @property
  def evolution_stopped(self) -> bool:
    """Whether patience has run out."""
    return 0 < self.config.patience <= self.flat

  @property
  def is_due(self) -> bool:
    """Whether a generation is to follow the episode that has just ended."""
    is_time = self.episodes > 0 and self.episodes % self.config.every == 0
    return is_time and not self.evolution_stopped

  def after_episode(self) -> Schedule:
    return dataclasses.replace(self, episodes=self.episodes + 1)

  def after_generation(self, best: float) -> Schedule:
    """Counts a generation, given its best fitness."""
    if not math.isfinite(best):
      raise ValueError(f'best={best}: expected the fitness of a prompt')
    if best > self.best + self.config.min_improvement:
      return dataclasses.replace(self, best=best, flat=0)
    return dataclasses.replace(self, flat=self.flat + 1)
