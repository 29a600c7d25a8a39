"""Islands and several objectives in the loop, and what is measured of them."""

import dataclasses

import numpy as np
import pytest

from promptrl_jax.evolution import diversity
from promptrl_jax.evolution.islands import IslandsConfig
from promptrl_jax.training.gpro.phases import LoopConfig
from tests.training.gpro.small import BANK, SMALL, make_loop, make_parts

NSGA2 = dataclasses.replace(SMALL.evolution, selection='nsga2')


@pytest.fixture(scope='module')
def parts():
  return make_parts()


def walk(loop, count, start=0):
  """Rates some answers by their length, so that short ones are liked."""
  for query in BANK[start : start + count]:
    showing = loop.show(query)
    loop.hear(showing.serial, 1 / (1 + len(showing.text) / 300))
    loop.learn()
  return loop


def make(parts, **settings):
  config = dataclasses.replace(SMALL, **settings)
  return make_loop(parts, config=config, embed_fn=diversity.word_vectors)


def test_each_generation_is_measured(parts):
  loop = walk(make(parts), 20)
  rows = loop.generations
  assert [row['generation'] for row in rows] == [1, 2, 3, 4]
  assert [row['queries'] for row in rows] == [5, 10, 15, 20]
  fitness = loop.population.fitness
  assert rows[-1]['best'] == fitness.max() and rows[-1]['size'] == 6
  assert rows[-1]['variance'] == pytest.approx(fitness.var())
  assert rows[-1]['jaccard'] == pytest.approx(
    diversity.jaccard_diversity(loop.population.texts)
  )
  assert rows[-1]['hypervolume'] is None and rows[-1]['embedding'] > 0


def test_islands_evolve_apart_and_send_their_best_on(parts):
  apart = walk(make(parts, islands=IslandsConfig(2, every=0)), 20)
  islands = apart._islands
  assert [len(island) for island in islands] == [3, 3]
  ids = [{one.id for one in island.individuals} for island in islands]
  assert not ids[0] & ids[1] and len(apart.population) == 6
  # Whoever stands on an island comes from there alone.
  families = []
  for living in ids:
    found, left = set(), list(living)
    while left:
      one = left.pop()
      found.add(one)
      left += [p for p in apart.history[one].parents if p not in found]
    families.append(found)
  assert not families[0] & families[1]

  met = walk(make(parts, islands=IslandsConfig(2, every=1)), 20)
  ids = [{one.id for one in island.individuals} for island in met._islands]
  assert ids[0] & ids[1] and len(met.population) == len(ids[0] | ids[1]) < 6
  assert apart.population.texts != walk(make(parts), 20).population.texts


def test_islands_go_on_from_a_snapshot(parts):
  settings = {'islands': IslandsConfig(3, every=2), 'refine_below': 0.0}
  loop = walk(make(parts, **settings), 15)
  again = make(parts, **settings)
  again.restore(*loop.snapshot())
  one, two = (walk(x, 10, start=15) for x in (loop, again))
  assert one.population == two.population and one._islands == two._islands
  assert one.generations == two.generations and len(one.generations) == 5
  one.refine()
  walk(one, 5, start=25)  # One population is left, and evolves.
  assert len(one._islands) == 1 and one.population.generation == 6


def test_short_answers_are_kept_where_they_are_an_objective(parts):
  loop = walk(make(parts, objectives='cost', evolution=NSGA2), 20)
  plain = walk(make(parts, evolution=NSGA2), 20)
  volumes = [row['hypervolume'] for row in loop.generations]
  assert all(0 < volume < 1 for volume in volumes)
  assert plain.generations[-1]['hypervolume'] is None
  assert loop.population.texts != plain.population.texts
  # Prompts are still picked by what they were expected to do in each case.
  assert all(len(o.objectives) == 3 for o in loop.population.individuals)


def test_one_case_is_enough_to_be_scored_on(parts):
  loop = walk(make(parts, window=1), 10)
  assert all(len(o.objectives) == 1 for o in loop.population.individuals)
  assert np.isfinite(loop.population.fitness).all()


def test_settings_that_contradict_each_other_are_refused():
  with pytest.raises(ValueError, match="objectives='joy': expected one of cas"):
    LoopConfig(objectives='joy')
  with pytest.raises(ValueError, match="selection='cover': expected nsga2"):
    LoopConfig(objectives='cost')
  with pytest.raises(ValueError, match='islands.count=11 of population_size=1'):
    LoopConfig(islands=IslandsConfig(11))
