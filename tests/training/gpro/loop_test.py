"""The loop of people, prompts and answers."""

import dataclasses
import time

import jax
import numpy as np
import pytest

from promptrl_jax.envs.simulated_user import SimulatedUser
from promptrl_jax.evolution import diversity
from promptrl_jax.llm.templated import TemplatedBackend
from promptrl_jax.tasks import queries
from promptrl_jax.training.gpro import off_policy
from promptrl_jax.training.gpro.config import GPROConfig
from promptrl_jax.training.gpro.features import FeatureMap
from promptrl_jax.training.gpro.learner import make_learner
from promptrl_jax.training.gpro.phases import LoopConfig
from tests.processor import slowness
from tests.training.gpro.small import BANK, make_loop


@pytest.fixture(scope='module')
def parts():
  features = FeatureMap(lambda texts: diversity.word_vectors(texts), BANK)
  config = GPROConfig(
    features=features.size, context=features.context, temperatures=(0.0, 1.0)
  )
  return features, make_learner(config, 0)


def make(parts, seed=0, backend=None, **settings):
  return make_loop(
    parts,
    backend,
    config=LoopConfig(bootstrap_queries=10, **settings),
    seed=seed,
    embed_fn=diversity.word_vectors,
  )


def walk(loop, count, start=0):
  """Satisfaction with `count` answers that a simulated person rates."""
  user, asked = SimulatedUser(seed=5), queries.draw('train', 200, 5)
  satisfaction = []
  for at in range(start, start + count):
    showing = loop.show(asked[at].text)
    rating = user.rate(asked[at], showing.text, at)
    assert loop.hear(showing.serial, (rating - 1) / 4)
    loop.learn()
    satisfaction.append(user.satisfaction(asked[at], showing.text, at))
  return satisfaction


@pytest.mark.slow
def test_people_become_more_satisfied_and_prompts_evolve(parts):
  gains = []
  for seed in range(3):
    loop = make(parts, seed)
    first = loop.population
    satisfaction = walk(loop, 120)
    gains.append(np.mean(satisfaction[-30:]) - np.mean(satisfaction[:30]))
  assert np.mean(gains) > 0.07
  assert loop.population.generation >= 10
  assert len(loop.population) == len(first) == 10
  # Children were scored before anybody was chosen, by what critics hope for.
  assert all(one.fitness is not None for one in loop.population.individuals)
  assert len(loop.history) > 15


@pytest.mark.slow
def test_a_run_is_a_function_of_its_seed(parts):
  one, two = (walk(make(parts, seed=3), 25) for _ in range(2))
  assert one == two != walk(make(parts, seed=4), 25)


@pytest.mark.parametrize('optimism', [0.0, 2.0])
def test_prompts_are_scored_with_what_is_not_known_of_them(parts, optimism):
  loop = make(parts, optimism=optimism)
  walk(loop, 15)
  last = queries.draw('train', 200, 5)[14].text
  genomes = [one.genome for one in loop.population.individuals]
  _, expected = loop.expect(genomes, last)
  scored = np.array([one.objectives[-1] for one in loop.population.individuals])
  if optimism:
    assert np.all(scored > np.array(expected) + 0.01)
  else:
    np.testing.assert_allclose(scored, expected, rtol=1e-5)


@pytest.mark.parametrize(
  ('gain_high', 'goes_live'), [(-0.1, False), (0.1, True)]
)
def test_an_actor_that_is_worse_for_sure_does_not_go_live(
  parts, monkeypatch, gain_high, goes_live
):
  loop = make(parts, judged=True)
  walk(loop, 29)
  assert 0 <= loop.metrics['off_policy/low'] < loop.metrics['off_policy/high']
  assert loop.metrics['off_policy/queries'] == 25
  before = loop.snapshot()[0].state
  evaluate = off_policy.evaluate
  monkeypatch.setattr(
    off_policy,
    'evaluate',
    lambda log, logps: evaluate(log, logps)._replace(gain_high=gain_high),
  )
  walk(loop, 1, start=29)
  after = loop.snapshot()[0].state
  same = jax.tree.map(
    np.array_equal, before.params['actor'], after.params['actor']
  )
  assert all(jax.tree.leaves(same)) != goes_live
  critics = before.params['critic'], after.params['critic']
  assert not jax.tree.all(jax.tree.map(np.array_equal, *critics))


def test_phases_follow_the_number_of_queries(parts):
  loop = make(parts, main_queries=20)
  assert loop.phase == 'init'
  walk(loop, 12)
  assert loop.phase == 'main'
  walk(loop, 10, start=12)
  generation = loop.population.generation
  assert loop.phase == 'refinement' and generation > 0
  walk(loop, 10, start=22)
  assert loop.population.generation == generation


def test_the_first_phase_draws_from_more_prompts_than_evolve(parts):
  loop = make(parts, bootstrap_prompts=30)
  first, size = list(loop.history), len(loop.population)
  assert len(first) == 40 and size == 10
  asked = queries.draw('train', 11, 5)
  shown = [loop.show(query.text) for query in asked]
  early = {one.id for showing in shown[:10] for one in showing.prompts}
  # Of fifty draws from forty prompts most are from beside the population.
  assert len(early - set(first[:size])) > 15
  assert {one.id for one in shown[10].prompts} <= set(first[:size])
  alone = make(parts, bootstrap_prompts=30, evolves=False)
  assert len(alone.history) == len(alone.population) == 10


def test_the_last_phase_drops_what_nobody_needs(parts):
  loop = make(parts, refine_below=1.0)  # nobody is that good
  walk(loop, 30)
  best = loop.population.elite(1)[0]
  loop.refine_if_due()  # not yet
  assert len(loop.population) == 10
  loop.refine()
  assert loop.population.individuals == (best,)
  assert loop.show(BANK[0]).prompt == best


def test_feedback_may_come_late_and_counts_for_its_own_answer(parts):
  loop = make(parts)
  first, second = loop.show(BANK[0]), loop.show(BANK[1])
  assert loop.hear(second.serial, 1.0) and loop.hear(first.serial, 0.0)
  rewards = dict(zip(loop._replay.serial, loop._replay.reward, strict=True))
  assert rewards[first.serial] == 0 and rewards[second.serial] == 1


def test_the_backend_receives_the_temperature_of_the_actor(parts):
  seen = []

  class Watched(TemplatedBackend):
    def complete(self, requests):
      seen.extend(request.temperature for request in requests)
      return super().complete(requests)

  loop = make(parts, backend=Watched())
  for query in BANK[:20]:
    loop.show(query)
  assert set(seen) == {0.0, 1.0}


@pytest.mark.parametrize('name', ['random', 'epsilon_greedy', 'thompson'])
def test_rivals_read_the_same_critics(parts, name):
  loop = make(parts, choose=name, evolves=False)
  walk(loop, 15)
  assert loop.population.generation == 0


def test_a_step_without_model_calls_is_quick(parts):
  answering = [0.0]

  class Timed(TemplatedBackend):
    def complete(self, requests):
      started = time.process_time()
      completions = super().complete(requests)
      answering[0] += time.process_time() - started
      return completions

  loop, steps, updates = make(parts, backend=Timed()), [], []
  walk(loop, 60)
  for query in BANK[60:80]:
    showing = loop.show(query)
    loop.hear(showing.serial, 0.5)
    run, before = loop.snapshot()[0], answering[0]
    started = time.process_time()
    is_due = loop.learn()
    seconds = time.process_time() - started - (answering[0] - before)
    if is_due:
      steps.append(seconds)
      started = time.process_time()
      jax.block_until_ready(parts[1].update(run.state, run.replay))
      updates.append(time.process_time() - started)
  # An update has a bound of its own in `learner_test`: how quickly it runs
  # depends on how it was compiled. The rest takes 15 to 30 ms alone, and 40
  # beside another process that uses the same caches.
  assert len(steps) == 4
  assert min(steps) - min(updates) < 0.08 * slowness()


def test_settings_that_make_no_sense_are_refused(parts):
  with pytest.raises(ValueError, match="choose='best': expected one of random"):
    LoopConfig(choose='best')
  with pytest.raises(ValueError, match='refine_below=40: expected 0 to 1'):
    LoopConfig(refine_below=40)
  with pytest.raises(ValueError, match='window=0'):
    dataclasses.replace(LoopConfig(), window=0)
  with pytest.raises(ValueError, match='3 queries for 8 components'):
    FeatureMap(diversity.word_vectors, BANK[:3], components=8)
