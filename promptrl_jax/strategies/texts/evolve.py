"""A small genetic algorithm over texts, whose operators are model calls.

Each generation keeps the best texts as they are (elitism) and fills up with
children: a parent wins a tournament on its mean score; a child is a rewrite of
one parent (mutation) or one text made of two (crossover). The best mean never
falls from one generation to the next.
"""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np

from promptrl_jax.evolution.islands import IslandsConfig, round_the_ring
from promptrl_jax.strategies.texts import best_of_n
from promptrl_jax.strategies.texts.pool import (
  Pool,
  ranked,
)
from promptrl_jax.strategies.texts.requests import (
  Search,
)


@dataclasses.dataclass(frozen=True)
class EvolveConfig:
  """Settings of the algorithm.

  Attributes:
    population: texts of a generation, of all islands together.
    elite: of these, the best ones of the generation before, on each island.
    crossover: probability that a child has two parents.
    tournament: texts of which the best becomes a parent.
    islands: populations apart that the texts are dealt out to, and after how
      many generations the best of each replace the worst of the next one.
  """

  population: int = 4
  elite: int = 1
  crossover: float = 0.5
  tournament: int = 2
  islands: IslandsConfig = IslandsConfig(count=1)

  def __post_init__(self):
    if not 1 <= self.elite < self.population // self.islands.count:
      raise ValueError(
        f'elite={self.elite}, population={self.population}, islands='
        f'{self.islands.count}: expected 1 <= elite < population of an island'
      )
    if not 0 <= self.crossover <= 1 or self.tournament < 1:
      raise ValueError(
        f'crossover={self.crossover}, tournament={self.tournament}: expected '
        'a probability and a size of 1 or more'
      )


price = best_of_n.price


def search(pool: Pool, config: EvolveConfig) -> Search:
  """Breeds generations until the budget is spent."""
  yield from pool.start()
  islands = [[0] for _ in range(config.islands.count)]
  for generation in itertools.count():
    for place, population in enumerate(islands):
      kept = ranked(pool.candidates, population)[: config.elite]
      size = len(range(place, config.population, len(islands)))
      count = min(size - len(kept), pool.calls_left // price(pool))
      pool.check_affords(max(1, count) * price(pool))
      # Each island draws for itself.
      state = [pool.seed, generation, *([place] if place else [])]
      rng = np.random.default_rng(state)
      families = [_parents(pool, population, config, rng) for _ in range(count)]
      children = yield from best_of_n.breed(pool, families)
      islands[place] = kept + children
    islands = _migrated(pool, islands, config.islands, generation + 1)


def _migrated(
  pool: Pool, islands: list[list[int]], config: IslandsConfig, generation: int
) -> list[list[int]]:
  """The islands, after a migration if one is due."""
  if len(islands) == 1 or not config.every or generation % config.every:
    return islands
  moved = round_the_ring(
    [ranked(pool.candidates, population) for population in islands],
    config.migrants,
    name=lambda place: place,
    is_known=lambda place: True,
  )
  return [stay + guests for stay, guests in moved]


def _parents(
  pool: Pool,
  population: list[int],
  config: EvolveConfig,
  rng: np.random.Generator,
) -> tuple[int, ...]:
  """Draws one parent, or two different ones."""
  is_crossed = rng.random() < config.crossover

  def win(entrants: list[int]) -> int:
    size = min(config.tournament, len(entrants))
    drawn = rng.choice(entrants, size, replace=False).tolist()
    return ranked(pool.candidates, drawn)[0]

  first = win(population)
  others = [k for k in population if k != first]
  return (first, win(others)) if is_crossed and others else (first,)
