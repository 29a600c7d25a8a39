"""Populations that evolve apart and now and then send their best on.

Whitley, Rana and Heckendorn 1999, The Island Model Genetic Algorithm. Islands
stand in a ring: the best of each replace the worst of the next one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

import numpy as np

from promptrl_jax.evolution.evolve import EvolutionConfig, ScoreFn, evolve
from promptrl_jax.evolution.population import Population
from promptrl_jax.evolution.variation import EditFn

One = TypeVar('One')


@dataclasses.dataclass(frozen=True)
class IslandsConfig:
  """Settings of the islands.

  Attributes:
    count: of islands.
    every: generations between two migrations; 0 for none.
    migrants: that each island sends on.
  """

  count: int = 3
  every: int = 5
  migrants: int = 1

  def __post_init__(self):
    if self.count < 1 or self.every < 0 or self.migrants < 0:
      raise ValueError(
        f'count={self.count}, every={self.every}, migrants={self.migrants}: '
        'expected 1 or more, 0 or more, 0 or more'
      )


def split(population: Population, count: int) -> list[Population]:
  """Deals a population out to islands, the best first, one after the other.

  Raises:
    ValueError: an island would be empty.
  """
  if not 1 <= count <= len(population):
    raise ValueError(
      f'{count} islands for {len(population)} prompts: expected 1 or more, and '
      'a prompt for each'
    )
  ranked = population.ranked()
  return [
    Population(tuple(ranked[i::count]), population.generation)
    for i in range(count)
  ]


def migrate(islands: Sequence[Population], migrants: int) -> list[Population]:
  """Has the best of each island replace the worst of the next one.

  They stay where they come from as well, under the same id. Nobody who is among
  the best of an island is replaced, and nobody comes twice, so that sizes and
  the best of each island stay.
  """
  moved = round_the_ring(
    [island.ranked() for island in islands],
    migrants,
    name=lambda one: one.id,
    is_known=lambda one: one.fitness is not None,
  )
  return [
    Population((*stay, *guests), island.generation)
    for island, (stay, guests) in zip(islands, moved, strict=True)
  ]


def round_the_ring(
  islands: Sequence[Sequence[One]],
  migrants: int,
  *,
  name: Callable[[One], Hashable],
  is_known: Callable[[One], bool],
) -> list[tuple[list[One], list[One]]]:
  """Says who stays on each island and who comes from the one before.

  Args:
    islands: everybody, the best of each island first.
    migrants: that each island sends on.
    name: nobody comes to an island where one of the same name is.
    is_known: whether the fitness of somebody is known; others do not move.
  """
  moved = []
  for place, island in enumerate(islands):
    here = set(map(name, island))
    guests = [
      one
      for one in islands[place - 1][:migrants]
      if name(one) not in here and is_known(one)
    ]
    # An island of few keeps its best, however many come.
    guests = guests[: len(island) - 1]
    moved.append((list(island[: len(island) - len(guests)]), guests))
  return moved


def merge(islands: Sequence[Population]) -> Population:
  """Returns everybody in one population, who is on several islands once."""
  people = {one.id: one for i in islands for one in i.individuals}
  return Population(
    tuple(people.values()), max(island.generation for island in islands)
  )


def evolve_islands(
  islands: Sequence[Population],
  edit_fn: EditFn,
  score_fn: ScoreFn,
  config: EvolutionConfig = EvolutionConfig(),
  islands_config: IslandsConfig = IslandsConfig(),
  *,
  rng: np.random.Generator,
  **options: Any,
) -> list[Population]:
  """Returns the next generation of each island, after a migration if it is due.

  Args:
    islands: as many as `islands_config.count`.
    edit_fn, score_fn, config: of `evolve`, for each island.
    islands_config: when who migrates.
    rng: is consumed; each island has random numbers of its own.
    **options: `embed_fn` and `hint` of `evolve`.
  """
  if len(islands) != islands_config.count:
    raise ValueError(f'{len(islands)} islands: expected {islands_config.count}')
  evolved = [
    evolve(island, edit_fn, score_fn, config, rng=own, **options)
    for island, own in zip(islands, rng.spawn(len(islands)), strict=True)
  ]
  every, generation = islands_config.every, evolved[0].generation
  if every and generation % every == 0:
    return migrate(evolved, islands_config.migrants)
  return evolved
