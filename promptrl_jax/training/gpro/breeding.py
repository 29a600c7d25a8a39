"""The next generation of the prompts, by what critics hope for.

islands ──forget fitness──> evolve ──mean + optimism x spread──> selection
                                                                      │
next generation, with the fitness that is expected of it <────────────┘

One island is the usual population. Several evolve apart, and their best move
on round a ring: `evolution/islands.py`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from promptrl_jax.evolution import islands as islands_lib
from promptrl_jax.evolution.diversity import EmbedFn
from promptrl_jax.evolution.evolve import EvolutionConfig, evolve
from promptrl_jax.evolution.hints import Hint
from promptrl_jax.evolution.population import Individual, Population
from promptrl_jax.evolution.variation import EditFn
from promptrl_jax.prompts.genome import PromptGenome
from promptrl_jax.training.gpro.phases import LoopConfig
from promptrl_jax.training.gpro.scoring import Expected

ExpectFn = Callable[[Sequence[PromptGenome]], Expected]
_SCALE = 500.0  # tokens of an answer that is half as short as an empty one


class Generation(NamedTuple):
  """What a generation leaves.

  Attributes:
    islands: populations. Their objectives are optimistic, one for each case;
      their fitness is the mean of what is expected, as it is for people.
    front: by prompt, the satisfaction that is expected and the shortness of
      answers, in [0, 1]; empty unless prompts are chosen by both.
  """

  islands: list[Population]
  front: dict[str, tuple[float, float]]


def next_generation(
  islands: Sequence[Population],
  edit_fn: EditFn,
  expect_fn: ExpectFn,
  config: LoopConfig,
  *,
  count_tokens: Callable[[str], int],
  rng: np.random.Generator,
  embed_fn: EmbedFn | None = None,
  hint: Hint | None = None,
) -> Generation:
  """Returns the next generation; all in it were scored by today's critics.

  Args:
    islands: one population, or `config.islands.count` of them.
    expect_fn: what critics expect of prompts. They have learned since the last
      generation, so that nobody keeps a fitness.
    count_tokens: of an answer, for the objective `cost`.
    rng: is consumed.
    edit_fn, embed_fn, hint: see `evolution.evolve.evolve`.
  """
  fitness: dict[str, float] = {}
  hopes: dict[str, tuple[float, ...]] = {}
  front: dict[str, tuple[float, float]] = {}

  def score(genomes: Sequence[PromptGenome]) -> np.ndarray:
    mean, spread, answers = expect_fn(genomes)
    texts = [genome.render() for genome in genomes]
    expected, hoped = mean.mean(axis=1), mean + config.optimism * spread
    fitness.update(zip(texts, expected.tolist(), strict=True))
    hopes.update(zip(texts, map(tuple, hoped.tolist()), strict=True))
    if config.objectives == 'cases':
      return hoped
    counts = np.array([[count_tokens(text) for text in row] for row in answers])
    short = _SCALE / (_SCALE + counts.mean(axis=0))
    both = zip(expected.tolist(), short.tolist(), strict=True)
    front.update(zip(texts, both, strict=True))
    return np.stack([hoped.mean(axis=1), short], axis=1)

  def scored(one: Individual) -> Individual:
    text = one.genome.render()
    return dataclasses.replace(
      one, fitness=fitness[text], objectives=hopes[text]
    )

  forgotten = [_each(_forget, island) for island in islands]
  options: dict[str, Any] = {'rng': rng, 'embed_fn': embed_fn, 'hint': hint}
  if len(forgotten) == 1:
    alone = forgotten[0]
    evolved = [evolve(alone, edit_fn, score, config.evolution, **options)]
  else:
    evolved = islands_lib.evolve_islands(
      forgotten,
      edit_fn,
      score,
      _share(config.evolution, len(forgotten)),
      config.islands,
      **options,
    )
  return Generation([_each(scored, island) for island in evolved], front)


def _forget(one: Individual) -> Individual:
  return dataclasses.replace(one, fitness=None, objectives=(), trials=0)


def _each(
  change: Callable[[Individual], Individual], population: Population
) -> Population:
  individuals = tuple(map(change, population.individuals))
  return dataclasses.replace(population, individuals=individuals)


def _share(config: EvolutionConfig, count: int) -> EvolutionConfig:
  """The settings of one of several islands, on which as much is bred in all."""
  share = lambda number: -(-number // count)
  return dataclasses.replace(
    config,
    population_size=share(config.population_size),
    elite_size=share(config.elite_size),
    children=share(config.children),
  )
