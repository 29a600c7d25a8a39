"""Whether an evolution still gets anywhere, in numbers of each generation."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from promptrl_jax.evolution import diversity, pareto
from promptrl_jax.evolution.diversity import EmbedFn
from promptrl_jax.evolution.population import Population


def slope(values: Sequence[float], window: int = 5) -> float:
  """Returns the least-squares slope of the last values over their places.

  Args:
    values: best fitness of each generation, say.
    window: how many of the last ones count.

  Returns:
    The change per step; 0 for fewer than two values.
  """
  if window < 2:
    raise ValueError(f'window={window}: expected 2 or more')
  last = np.asarray(values, np.float64)[-window:]
  if len(last) < 2:
    return 0.0
  steps = np.arange(len(last)) - (len(last) - 1) / 2
  return float(steps @ last / (steps @ steps))


def generations_to_threshold(
  values: Sequence[float], threshold: float
) -> int | None:
  """Returns the first place of a value that is not lower; None if none is."""
  reached = np.flatnonzero(np.asarray(values, np.float64) >= threshold)
  return int(reached[0]) if len(reached) else None


def satisfaction(scores: Sequence[float], window: int = 50) -> float | None:
  """Returns the mean of the last scores of people; None if there are none."""
  if window < 1:
    raise ValueError(f'window={window}: expected 1 or more')
  return float(np.mean(scores[-window:])) if len(scores) else None


@dataclasses.dataclass(frozen=True)
class GenerationMetrics:
  """One generation in numbers.

  Attributes:
    generation, size: its number, and how many there are.
    best, mean, worst: known fitness; None if none is known.
    variance: of the known fitness.
    jaccard: mean difference of the words of two prompts, in [0, 1].
    embedding: mean 1 - cosine of two prompts; None without an encoder.
    hypervolume: of what the objectives dominate above 0; None without any.
  """

  generation: int
  size: int
  best: float | None
  mean: float | None
  worst: float | None
  variance: float
  jaccard: float
  embedding: float | None
  hypervolume: float | None = None


def measure(
  population: Population,
  embed_fn: EmbedFn | None = None,
  objectives: np.ndarray | None = None,
) -> GenerationMetrics:
  """Returns the numbers of a population.

  Args:
    embed_fn: texts -> vectors [n, D].
    objectives: float [N, M], few of them; see `pareto.hypervolume`.
  """
  fitness, texts = population.fitness, population.texts
  known = fitness[~np.isnan(fitness)]
  has = len(known) > 0
  return GenerationMetrics(
    population.generation,
    len(population),
    float(known.max()) if has else None,
    float(known.mean()) if has else None,
    float(known.min()) if has else None,
    diversity.fitness_variance(fitness),
    diversity.jaccard_diversity(texts),
    diversity.embedding_diversity(embed_fn(texts)) if embed_fn else None,
    None
    if objectives is None
    else pareto.hypervolume(objectives, np.zeros(np.shape(objectives)[1])),
  )
