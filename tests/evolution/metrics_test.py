"""Diversity and convergence, by numbers worked out by hand."""

import math

import numpy as np
import pytest
from scipy import stats

from promptrl_jax.evolution import convergence, diversity
from promptrl_jax.evolution.population import Individual, Population
from promptrl_jax.evolution.schedule import Schedule, ScheduleConfig
from tests.evolution.genomes import texts


@pytest.mark.parametrize(
  ('prompts', 'expected'),
  [
    (['a b c', 'b  c\nd'], 0.5),
    (['a b', 'b a a'], 0.0),
    (['a', 'b', 'a'], 2 / 3),
    (['', ''], 0.0),
    (['', 'a', ''], 1.0),  # The pair without any word is left out.
    (['a'], 0.0),
    ([], 0.0),
  ],
)
def test_jaccard(prompts, expected):
  assert math.isclose(diversity.jaccard_diversity(prompts), expected)


def test_jaccard_equals_its_definition_on_many_texts():
  rng = np.random.default_rng(0)
  prompts = [
    ' '.join(map(str, rng.integers(0, 30, rng.integers(0, 12))))
    for _ in range(25)
  ]
  sets = [set(prompt.split()) for prompt in prompts]
  pairs = [
    1 - len(a & b) / len(a | b)
    for i, a in enumerate(sets)
    for b in sets[:i]
    if a | b
  ]
  assert math.isclose(
    diversity.jaccard_diversity(prompts), np.mean(pairs), rel_tol=1e-6
  )


def test_embedding_diversity():
  vectors = np.array([[2.0, 0.0], [0.0, 3.0], [-1.0, 0.0]])
  # Cosines 0, -1 and 0: the mean of 1, 2 and 1.
  assert math.isclose(diversity.embedding_diversity(vectors), 4 / 3)
  same = np.ones((4, 3))
  assert math.isclose(diversity.embedding_diversity(same), 0, abs_tol=1e-6)
  assert diversity.embedding_diversity(vectors[:1]) == 0.0
  assert diversity.embedding_diversity(np.zeros((2, 3))) == 0.0
  with pytest.raises(ValueError, match='expected finite numbers'):
    diversity.cosines(np.array([[np.nan]]))


def test_the_variance_is_that_of_known_fitness():
  assert diversity.fitness_variance(np.array([1.0, 3.0, np.nan])) == 1.0
  assert diversity.fitness_variance(np.array([np.nan])) == 0.0


def test_a_kept_text_is_what_later_ones_are_compared_with():
  angles = np.radians([0, 15, 30, 90])  # cos 15° = 0.966, cos 30° = 0.866
  vectors = np.stack([np.cos(angles), np.sin(angles)], axis=1)
  prompts = ['a', 'b', 'c', 'd']
  places = {text: i for i, text in enumerate(prompts)}
  embed = lambda asked: vectors[[places[text] for text in asked]]
  assert diversity.distinct(prompts, embed) == [0, 2, 3]
  assert diversity.distinct(prompts, embed, 0.85) == [0, 3]
  # 15° is kept first, and both of its neighbours go.
  assert diversity.distinct(['b', 'b', 'a', 'c', 'd'], embed) == [0, 4]
  with pytest.raises(ValueError, match='similarity=0: expected a cosine'):
    diversity.distinct(prompts, embed, 0)


def test_nothing_is_embedded_twice():
  asked = []
  embed = diversity.embed_once(
    lambda new: asked.append(list(new)) or np.array([[len(t)] for t in new])
  )
  assert embed(['aa', 'b', 'aa']).tolist() == [[2], [1], [2]]
  assert embed(['b', 'ccc']).tolist() == [[1], [3]]
  assert asked == [['aa', 'b'], ['ccc']]


def test_vectors_of_words_have_the_cosine_of_their_counts():
  vectors = diversity.word_vectors(['Be brief, be kind.', 'kind', 'Übung', ''])
  cosines = diversity.cosines(vectors)
  # Counts 2, 1, 1 of three words.
  assert math.isclose(cosines[0, 1], 1 / math.sqrt(6), rel_tol=1e-6)
  assert cosines[0, 2] == 0 and cosines[3, 0] == 0 and cosines[3, 3] == 1


@pytest.mark.parametrize(
  ('values', 'window', 'expected'),
  [
    ([0, 1, 2, 3, 4], 5, 1.0),
    ([9, 9, 0, 1, 2, 3, 4], 5, 1.0),
    ([1, 0, 2], 5, 0.5),
    ([3, 3], 5, 0.0),
    ([3], 5, 0.0),
    ([], 5, 0.0),
    ([5, 1, 4], 2, 3.0),
  ],
)
def test_slope(values, window, expected):
  assert math.isclose(convergence.slope(values, window), expected)


def test_slope_is_that_of_scipy():
  values = np.random.default_rng(0).normal(size=12)
  expected = stats.linregress(np.arange(7), values[-7:]).slope
  assert math.isclose(convergence.slope(values, 7), expected)


def test_generations_to_a_threshold():
  values = [0, 1, 2, 3, 4]
  assert convergence.generations_to_threshold(values, 2) == 2
  assert convergence.generations_to_threshold(values, -1) == 0
  assert convergence.generations_to_threshold(values, 4.5) is None
  assert convergence.generations_to_threshold([], 0) is None


def test_satisfaction_is_that_of_the_last_ones():
  assert convergence.satisfaction([0.0] * 10 + [1.0] * 50) == 1.0
  assert convergence.satisfaction([0.0, 1.0]) == 0.5
  assert convergence.satisfaction([0.0, 1.0, 1.0], window=2) == 1.0
  assert convergence.satisfaction([]) is None


def test_a_generation_in_numbers():
  people = [
    Individual(genome, fitness, id=f'{i}')
    for i, (genome, fitness) in enumerate(
      zip(texts('a b', 'b c', 'a c'), (0.5, None, 1.0), strict=True)
    )
  ]
  found = convergence.measure(Population(tuple(people), 4))
  assert (found.generation, found.size) == (4, 3)
  assert (found.best, found.mean, found.worst) == (1.0, 0.75, 0.5)
  assert found.variance == 0.0625 and found.embedding is None
  assert math.isclose(found.jaccard, 2 / 3, rel_tol=1e-6)
  assert found.hypervolume is None
  front = np.array([[0.5, 0.5], [0.5, 0.25], [0.25, 1.0]])
  found = convergence.measure(Population(tuple(people), 4), objectives=front)
  assert math.isclose(found.hypervolume, 0.25 * 1.0 + 0.25 * 0.5)
  alone = convergence.measure(Population.of(texts('a')), diversity.word_vectors)
  assert (alone.best, alone.variance, alone.embedding) == (None, 0.0, 0.0)


def test_a_generation_is_due_every_few_episodes():
  schedule, due = Schedule(ScheduleConfig(every=3)), []
  for _ in range(7):
    due.append(schedule.is_due)
    schedule = schedule.after_episode()
  assert due == [False, False, False, True, False, False, True]


@pytest.mark.parametrize(
  ('config', 'best', 'stopped'),
  [
    (ScheduleConfig(patience=2), [0.5, 0.5, 0.5], [False, False, True]),
    (ScheduleConfig(patience=2), [0.5, 0.5, 0.6, 0.6], [False] * 4),
    (ScheduleConfig(patience=1), [0.5, 0.4], [False, True]),
    (ScheduleConfig(patience=0), [0.5] * 9, [False] * 9),
    # Small steps add up to an improvement over the best that counted.
    (
      ScheduleConfig(patience=2, min_improvement=0.15),
      [0.0, 0.1, 0.2, 0.3, 0.3],
      [False, False, False, False, True],
    ),
  ],
)
def test_evolution_stops_when_patience_has_run_out(config, best, stopped):
  schedule, seen = Schedule(config), []
  for value in best:
    schedule = schedule.after_generation(value)
    seen.append(schedule.evolution_stopped)
  assert seen == stopped


def test_what_has_stopped_is_not_due():
  schedule = Schedule(ScheduleConfig(every=1, patience=1)).after_episode()
  assert schedule.is_due
  schedule = schedule.after_generation(0.5).after_generation(0.5)
  assert schedule.evolution_stopped and not schedule.after_episode().is_due


@pytest.mark.parametrize(
  ('function', 'message'),
  [
    (lambda: convergence.slope([1], 1), 'window=1: expected 2 or more'),
    (lambda: convergence.satisfaction([1], 0), 'window=0: expected 1 or more'),
    (lambda: ScheduleConfig(every=0), 'every=0: expected 1 episode'),
    (lambda: ScheduleConfig(patience=-1), 'patience=-1'),
    (lambda: Schedule().after_generation(math.nan), 'best=nan: expected'),
  ],
)
def test_what_cannot_be_measured_is_refused(function, message):
  with pytest.raises(ValueError, match=message):
    function()
