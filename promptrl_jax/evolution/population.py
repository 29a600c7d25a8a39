"""Prompts with their fitness, and which of them are the best."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from promptrl_jax.evolution import diversity
from promptrl_jax.evolution.diversity import EmbedFn
from promptrl_jax.prompts import lineage
from promptrl_jax.prompts.genome import PromptGenome
from promptrl_jax.prompts.lineage import Node


@dataclasses.dataclass(frozen=True)
class Individual:
  """One prompt of a population.

  Attributes:
    genome: the prompt.
    fitness: how good it is, the higher the better; None if nobody knows.
    generation: in which it was made.
    id: its name, unique in all populations that it moves between.
    parents: ids of those that it was made of, the main one first.
    objectives: several measures of how good it is, the higher the better; its
      fitness is their mean. Empty if there is one measure.
    trials: observations that the fitness is a mean of.
    guided: the section that a hint was to change; empty if none was.
  """

  genome: PromptGenome
  fitness: float | None = None
  generation: int = 0
  id: str = ''
  parents: tuple[str, ...] = ()
  objectives: tuple[float, ...] = ()
  trials: int = 0
  guided: str = ''

  def __post_init__(self):
    for value in (self.fitness, *self.objectives):
      if value is not None and not math.isfinite(value):
        raise ValueError(
          f'fitness {value} of {self.genome.render()[:60]!r}: expected a '
          'finite number, or None if it is not known'
        )

  def scored(self, *objectives: float) -> Individual:
    """Returns it with a fitness: the one measure, or the mean of several."""
    return dataclasses.replace(
      self,
      fitness=math.fsum(objectives) / len(objectives),
      objectives=tuple(map(float, objectives)) if len(objectives) > 1 else (),
      trials=1,
    )

  def observed(self, reward: float, decay: float = 0.9) -> Individual:
    """Returns it with a fitness that has seen another reward.

    The mean of the rewards while there are few, so that a prompt is not worse
    for being new, and then their exponential moving average.

    Args:
      reward: of one use of the prompt.
      decay: weight of what was known before, once there was enough of it.
    """
    if not 0 <= decay <= 1:
      raise ValueError(f'decay={decay}: expected a weight in 0..1')
    if self.fitness is None:
      return self.scored(reward)
    weight = max(1 - decay, 1 / (self.trials + 1))
    fitness = self.fitness + weight * (reward - self.fitness)
    return dataclasses.replace(self, fitness=fitness, trials=self.trials + 1)


@dataclasses.dataclass(frozen=True)
class Population:
  """Prompts of one generation, in no particular order.

  Whoever has no fitness comes last where they are ranked; of equals the first
  comes first.
  """

  individuals: tuple[Individual, ...]
  generation: int = 0

  def __post_init__(self):
    ids = [one.id for one in self.individuals]
    if len(set(ids)) < len(ids):
      twice = next(name for name in ids if ids.count(name) > 1)
      raise ValueError(f'id {twice!r} occurs twice: expected unique ids')

  @classmethod
  def of(cls, genomes: Iterable[PromptGenome]) -> Population:
    """Returns the first generation, whose ids are `0`, `1`, ..."""
    return cls(
      tuple(Individual(genome, id=f'{i}') for i, genome in enumerate(genomes))
    )

  def __len__(self) -> int:
    return len(self.individuals)

  @property
  def fitness(self) -> np.ndarray:
    """Float64 [N]; not a number where it is not known."""
    return np.array(
      [math.nan if i.fitness is None else i.fitness for i in self.individuals],
      np.float64,
    )

  @property
  def texts(self) -> list[str]:
    """The prompts, [N]."""
    return [one.genome.render() for one in self.individuals]

  def ranked(self) -> list[Individual]:
    """All of them, the best first."""
    order = np.argsort(-self.fitness, kind='stable')  # NaN comes last.
    return [self.individuals[i] for i in order]

  def elite(self, count: int) -> list[Individual]:
    """The best, at most `count`, the best first."""
    return self.ranked()[: _checked(count)]

  top_k = elite

  def worst(self, count: int) -> list[Individual]:
    """The worst, at most `count`, the worst first."""
    return self.ranked()[::-1][: _checked(count)]

  def with_individual(self, individual: Individual) -> Population:
    """Returns a population in which it takes the place of that of its id.

    Raises:
      ValueError: there is none of that id.
    """
    ids = [one.id for one in self.individuals]
    if individual.id not in ids:
      raise ValueError(
        f'id {individual.id!r}: expected that of an individual, one of '
        f'{", ".join(ids)}'
      )
    place = ids.index(individual.id)
    before, after = self.individuals[:place], self.individuals[place + 1 :]
    return dataclasses.replace(self, individuals=(*before, individual, *after))

  def without_duplicates(
    self, embed_fn: EmbedFn | None = None, similarity: float = 0.95
  ) -> Population:
    """Returns it with one of all those that say the same, the best of them.

    Args:
      embed_fn: texts -> vectors [n, D]. Prompts whose vectors have a larger
        cosine than `similarity` say the same; None: those that are equal.
      similarity: see there.
    """
    ranked = self.ranked()
    texts = [one.genome.render() for one in ranked]
    kept = diversity.distinct(texts, embed_fn, similarity)
    chosen = {ranked[i].id for i in kept}
    return self._only(lambda one: one.id in chosen)

  def at_least(self, threshold: float) -> Population:
    """Returns it without those whose fitness is lower, or not known.

    The best one stays in any case.
    """
    best = {one.id for one in self.elite(1)}
    return self._only(
      lambda one: (
        one.id in best or (one.fitness is not None and one.fitness >= threshold)
      )
    )

  def _only(self, is_kept: Callable[[Individual], bool]) -> Population:
    kept = tuple(one for one in self.individuals if is_kept(one))
    return dataclasses.replace(self, individuals=kept)


def _checked(count: int) -> int:
  if count < 0:
    raise ValueError(f'count={count}: expected 0 or more')
  return count


def nodes(individuals: Iterable[Individual]) -> list[Node]:
  """Returns what `prompts.lineage` draws of individuals of any generations.

  One that occurs in several generations is drawn once, with its last fitness.
  """
  return list(
    {
      one.id: Node(one.id, one.parents, one.genome.render(), one.fitness)
      for one in individuals
    }.values()
  )


def draw_lineage(
  population: Population, history: Iterable[Individual], width: int = 160
) -> str:
  """Draws what the prompts of a population come from, a line for each.

  Args:
    history: all individuals that there were; those that left no trace in the
      population are passed over.
    width: most characters of a prompt that are shown.
  """
  living = [one.id for one in population.individuals]
  known = nodes([*history, *population.individuals])
  rows = lineage.forest(lineage.ancestors(known, living))
  return lineage.draw(rows, width)


def to_plain(population: Population) -> dict[str, Any]:
  """Returns a population as plain data, ready for JSON."""
  return {
    'generation': population.generation,
    'individuals': [
      {
        **{f.name: getattr(one, f.name) for f in dataclasses.fields(one)},
        'genome': {
          'sections': [list(pair) for pair in one.genome.sections.items()],
          'metadata': dict(one.genome.metadata),
        },
        'parents': list(one.parents),
        'objectives': list(one.objectives),
      }
      for one in population.individuals
    ],
  }


def from_plain(plain: Mapping[str, Any]) -> Population:
  """Returns the population of plain data that `to_plain` made."""

  def individual(row: Mapping[str, Any]) -> Individual:
    genome = PromptGenome(
      dict(row['genome']['sections']), row['genome']['metadata']
    )
    lists = {name: tuple(row[name]) for name in ('parents', 'objectives')}
    return Individual(**{**row, **lists, 'genome': genome})

  return Population(
    tuple(map(individual, plain['individuals'])), plain['generation']
  )
