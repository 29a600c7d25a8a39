"""Who is best, who says the same, and what becomes of a fitness."""

import json
import math

import numpy as np
import pytest

from promptrl_jax.evolution import population as population_lib
from promptrl_jax.evolution.diversity import word_vectors
from promptrl_jax.evolution.population import Individual, Population
from promptrl_jax.prompts import lineage
from promptrl_jax.prompts.genome import PromptGenome
from tests.evolution.genomes import texts


def population(*rows):
  """Individuals named a, b, ... of (text, fitness)."""
  return Population(
    tuple(
      Individual(genome, fitness, id=name)
      for name, (genome, fitness) in zip(
        'abcdefg', ((texts(t)[0], f) for t, f in rows), strict=False
      )
    )
  )


def ids(individuals):
  return ''.join(one.id for one in individuals)


FOUR = population(('w', 0.5), ('x', None), ('y', 0.75), ('z', 0.5))


@pytest.mark.parametrize(
  ('count', 'best', 'worst'),
  [(0, '', ''), (1, 'c', 'b'), (2, 'ca', 'bd'), (9, 'cadb', 'bdac')],
)
def test_the_best_and_the_worst(count, best, worst):
  assert ids(FOUR.elite(count)) == ids(FOUR.top_k(count)) == best
  assert ids(FOUR.worst(count)) == worst
  assert ids(FOUR.individuals) == 'abcd'  # Looking does not sort it.


def test_the_first_generation_has_no_fitness():
  first = Population.of(texts('x', 'y'))
  assert ids(first.individuals) == '01' and first.texts == ['x', 'y']
  assert np.isnan(first.fitness).all() and len(first) == 2


def test_of_those_that_say_the_same_the_best_is_kept():
  same = population(('be brief', 0.25), ('be brief ', 0.5), ('be kind', 0.25))
  assert ids(same.without_duplicates().individuals) == 'bc'
  assert ids(FOUR.without_duplicates().individuals) == 'abcd'


def test_two_that_are_near_become_one():
  long = 'answer in two short sentences and name the source of each fact'
  near = population(
    (f'{long} you state', 0.25), (f'{long} you state!', 0.5), ('be kind', 0.0)
  )
  assert ids(near.without_duplicates().individuals) == 'abc'
  assert ids(near.without_duplicates(word_vectors).individuals) == 'bc'
  # 12 words of 14 are shared: cosine 12 / 14 = 0.857.
  other = population((f'{long} you state', 0.25), (f'{long} we claim', 0.5))
  assert len(other.without_duplicates(word_vectors)) == 2
  assert len(other.without_duplicates(word_vectors, 0.85)) == 1


def test_a_threshold_never_leaves_nobody():
  assert ids(FOUR.at_least(0.5).individuals) == 'acd'
  assert ids(FOUR.at_least(0.9).individuals) == 'c'
  assert ids(population(('x', None)).at_least(0.9).individuals) == 'a'


def test_a_fitness_is_a_mean_before_it_is_an_average_that_moves():
  one = Individual(texts('x')[0])
  for reward in (1.0, 0.0, 0.5):
    one = one.observed(reward)
  assert (one.fitness, one.trials) == (0.5, 3)
  for _ in range(7):
    one = one.observed(0.5)
  assert one.trials == 10 and math.isclose(one.observed(1.5).fitness, 0.6)
  # From a score, which is one observation.
  assert Individual(texts('x')[0]).scored(1.0).observed(0.0).fitness == 0.5


def test_the_fitness_of_several_objectives_is_their_mean():
  one = Individual(texts('x')[0]).scored(0.25, 0.75)
  assert (one.fitness, one.objectives) == (0.5, (0.25, 0.75))
  assert Individual(texts('x')[0]).scored(0.25).objectives == ()


def test_one_is_exchanged_by_its_id():
  changed = FOUR.with_individual(FOUR.individuals[1].scored(1.0))
  assert ids(changed.elite(2)) == 'bc' and ids(FOUR.elite(1)) == 'c'
  with pytest.raises(ValueError, match="id 'q': expected .* one of a, b, c, d"):
    FOUR.with_individual(Individual(texts('x')[0], id='q'))


def test_what_is_no_population_is_refused():
  with pytest.raises(ValueError, match="id 'a' occurs twice"):
    Population(FOUR.individuals[:1] * 2)
  with pytest.raises(ValueError, match="fitness nan of 'x': expected a finite"):
    Individual(texts('x')[0], math.nan)
  for look in (FOUR.elite, FOUR.worst):
    with pytest.raises(ValueError, match='count=-1: expected 0 or more'):
      look(-1)


def test_a_population_comes_back_from_json():
  genome = PromptGenome({'tone': 'kind', 'role': 'tutor'}, {'by': 'me'})
  before = Population(
    (Individual(genome, 0.5, 3, 'a', ('x', 'y'), (0.25, 0.75), 4),), 3
  )
  plain = json.loads(
    json.dumps(population_lib.to_plain(before), sort_keys=True)
  )
  after = population_lib.from_plain(plain)
  assert after == before
  assert after.texts == ['kind\n\ntutor']  # The order of sections survives.


def test_a_lineage_is_drawn_of_several_generations():
  child = Individual(texts('v')[0], 0.9, 1, 'e', ('a', 'c'))
  nodes = population_lib.nodes(
    [*FOUR.individuals, child, FOUR.individuals[0].scored(0.6)]
  )
  assert lineage.draw(lineage.forest(nodes)).split('\n') == [
    *('a 0.600: w', '└─ e 0.900 (with c): v', 'b: x', 'c 0.750: y'),
    'd 0.500: z',
  ]
