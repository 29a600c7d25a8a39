"""Prompts that are good together."""

import numpy as np
import pytest

from promptrl_jax.evolution.cover import cover_order
from promptrl_jax.evolution.evolve import EvolutionConfig, evolve
from promptrl_jax.evolution.population import Population
from promptrl_jax.prompts.genome import PromptGenome


def test_specialists_come_before_those_who_are_fair_at_everything():
  objectives = [[0.9, 0.1], [0.6, 0.6], [0.1, 0.9], [0.8, 0.1]]
  # The mean is best of the second. The first adds 0.3 to it, as the third does.
  assert cover_order(np.array(objectives)).tolist() == [1, 0, 2, 3]


def test_the_first_two_are_nearly_as_good_as_the_best_two():
  rng = np.random.default_rng(0)
  for _ in range(20):
    values = rng.random((6, 5))
    pairs = [values[[i, j]] for i in range(6) for j in range(i)]
    best = max(pair.max(axis=0).sum() for pair in pairs)
    found = values[cover_order(values)[:2]].max(axis=0).sum()
    assert found >= (1 - 1 / np.e) * best


@pytest.mark.parametrize('values', [[1.0, 2.0], [[np.nan, 1.0]]])
def test_what_is_no_table_of_numbers_is_refused(values):
  with pytest.raises(ValueError, match=r'expected finite numbers \[N, M\]'):
    cover_order(np.array(values))


def test_a_population_keeps_somebody_for_each_case():
  def score(genomes):
    texts = [genome.render() for genome in genomes]
    return np.array([[t.count('a'), t.count('b')] for t in texts], float)

  def more(edits):
    return [edit.text + 'ab'[edit.seed % 2] for edit in edits]

  start = Population.of([PromptGenome({'role': x}) for x in ('a', 'b', 'c')])
  config = EvolutionConfig(
    elite_size=3, children=6, mutation_rate=1.0, selection='cover'
  )
  population, rng = start, np.random.default_rng(1)
  for _ in range(8):
    population = evolve(population, more, score, config, rng=rng)
  scores = score([one.genome for one in population.individuals])
  assert len(population) == 3
  assert scores[:, 0].max() >= 5 and scores[:, 1].max() >= 5
