"""The next generation of the prompts, by what critics hope for.

population ──forget fitness──> evolve ──mean + optimism x spread──> selection
                                                                        │
next generation, with the fitness that is expected of it <──────────────┘
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from promptrl_jax.evolution.diversity import EmbedFn
from promptrl_jax.evolution.evolve import EvolutionConfig, evolve
from promptrl_jax.evolution.hints import Hint
from promptrl_jax.evolution.population import Population
from promptrl_jax.evolution.variation import EditFn
from promptrl_jax.prompts.genome import PromptGenome

# n genomes -> mean and standard deviation of what is expected in m cases,
# float [n, m] each.
ExpectFn = Callable[[Sequence[PromptGenome]], tuple[np.ndarray, np.ndarray]]


def next_generation(
  population: Population,
  edit_fn: EditFn,
  expect_fn: ExpectFn,
  config: EvolutionConfig,
  *,
  optimism: float,
  rng: np.random.Generator,
  embed_fn: EmbedFn | None = None,
  hint: Hint | None = None,
) -> Population:
  """Returns the next generation; all in it were scored by today's critics.

  Args:
    expect_fn: what critics expect of prompts; has learned since the last
      generation, so that nobody keeps a fitness.
    optimism: standard deviations that are added to the mean for the choice.
    rng: is consumed.
    edit_fn, config, embed_fn, hint: see `evolution.evolve.evolve`.

  Returns:
    A population whose objectives are optimistic, one for each case, and whose
    fitness is the mean of what is expected without optimism: it is for people.
  """
  expected: dict[str, float] = {}

  def score(genomes: Sequence[PromptGenome]) -> np.ndarray:
    mean, spread = expect_fn(genomes)
    texts = [genome.render() for genome in genomes]
    expected.update(zip(texts, mean.mean(axis=1).tolist(), strict=True))
    return mean + optimism * spread

  parents = tuple(
    dataclasses.replace(one, fitness=None, objectives=(), trials=0)
    for one in population.individuals
  )
  evolved = evolve(
    dataclasses.replace(population, individuals=parents),
    edit_fn,
    score,
    config,
    rng=rng,
    embed_fn=embed_fn,
    hint=hint,
  )
  individuals = tuple(
    dataclasses.replace(one, fitness=expected[one.genome.render()])
    for one in evolved.individuals
  )
  return dataclasses.replace(evolved, individuals=individuals)
