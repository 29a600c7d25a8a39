"""GPRO learns what people like, from few ratings, and again when it changes."""

import functools
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from promptrl_jax.llm.candidates import candidate_requests
from promptrl_jax.testing.scripted import ScriptedBackend
from promptrl_jax.training import checkpoint
from promptrl_jax.training.gpro import learner as learner_lib
from promptrl_jax.training.gpro import off_policy
from promptrl_jax.training.gpro import replay as replay_lib
from promptrl_jax.training.gpro.config import GPROConfig
from promptrl_jax.training.gpro.state import GPRORun
from tests.processor import slowness
from tests.training.gpro.world import FEATURES, World, correlation, play

CONFIG = GPROConfig(features=FEATURES)
SEEDS = range(5)


@functools.cache
def make(config):
  learner = learner_lib.make_learner(config, 0)
  return learner, jax.jit(learner.initial_fn)


def start(config, seed):
  learner, initial = make(config)
  return learner, initial(jax.random.key(seed))


@functools.cache
def played(policy, taste='linear', drift=10**9, config=CONFIG):
  """`[seeds, 300]` values by name, and a correlation for each seed."""
  runs, correlations = [], []
  for seed in SEEDS:
    learner, state = start(config, seed)
    world = World(seed, taste, drift)
    state, _, values = play(learner, state, world, 300, policy)
    runs.append(values)
    correlations.append(correlation(learner, state, world, 300))
  names = runs[0].keys()
  return {n: np.array([r[n] for r in runs]) for n in names}, correlations


@pytest.mark.slow
@pytest.mark.parametrize('taste', ['linear', 'mild'])
def test_three_hundred_ratings_are_enough(taste):
  values, correlations = played('gpro', taste)
  assert np.mean(correlations) > 0.7
  regret = values['regret'].mean(axis=0)
  random = played('random', taste)[0]['regret'].sum()
  assert values['regret'].sum() < 0.5 * random
  assert regret[-100:].mean() < 0.5 * regret[:50].mean()  # sublinear
  greedy, _ = played('greedy', taste)
  assert values['regret'].sum() < 1.1 * greedy['regret'].sum()
  assert values['regret'][:, -100:].sum() < greedy['regret'][:, -100:].sum()


@pytest.mark.slow
def test_a_taste_that_changed_is_learned_again_within_sixty_queries():
  values, correlations = played('gpro', drift=150)
  assert np.mean(correlations) > 0.7
  before = values['value'][:, 100:150].mean()
  assert values['value'][:, 150:155].mean() < 0.75 * before
  assert values['value'][:, 195:225].mean() >= 0.9 * before
  assert values['value'][:, 260:].mean() >= 0.95 * before


@pytest.mark.slow
@pytest.mark.parametrize(
  ('advantage', 'kind'), [('candidates', 'rating'), ('shown', 'thumbs')]
)
def test_a_bandit_is_learned_in_two_hundred_updates(advantage, kind):
  config = GPROConfig(
    features=4,
    candidates=4,
    advantage=advantage,
    max_weight=1.0 if advantage == 'candidates' else 4.0,
    every=2,
    entropy_coef=0.05,
  )
  learner, state = start(config, 0)
  replay = replay_lib.empty(config)
  features = np.eye(4, dtype=np.float32)
  rates, errors = np.array([0.3, 0.5, 0.8, 0.4]), []
  thumbs = np.random.default_rng(0).random((400, 4)) < rates
  for query in range(400):
    replay, serial, choice = learner.choose(state, replay, features)
    shown = choice.shown
    replay, _ = replay_lib.rate(replay, serial, thumbs[query, shown], kind)
    if learner.due(replay):
      state, _ = learner.update(state, replay)
    errors.append((choice.scores[shown] - rates[shown]) ** 2)
  _, _, choice = learner.choose(state, replay, features)
  assert state.step == 200
  assert jnp.argmax(choice.logps) == 2
  assert jnp.exp(choice.logps).max() > 0.9
  assert np.mean(errors[-50:]) < 0.5 * np.mean(errors[:5])


@pytest.mark.parametrize('tie', [0.0, 0.3])
def test_pairs_teach_the_critic_an_order(tie):
  """Bradley-Terry on pairs that a linear score separates, and ties."""
  config = GPROConfig(features=4, candidates=2)
  learner, state = start(config, 0)
  replay, rng = replay_lib.empty(config), np.random.default_rng(0)
  weights, mask = np.array([2.0, -1.0, 0.5, 0.0]), np.ones(2, bool)
  for _ in range(200):
    features = rng.normal(size=(2, 4))
    first, second = features @ weights
    replay, serial = replay_lib.add(
      replay, features, mask, np.log([0.5, 0.5]), [0.5, 0.5], 0, 1
    )
    reward = 0.5 if abs(first - second) < tie else float(first > second)
    replay, _ = replay_lib.rate(replay, serial, reward, 'pair')
    if learner.due(replay):
      state, _ = learner.update(state, replay)
  features = rng.normal(size=(500, 2, 4)).astype(np.float32)
  choice = learner.act(
    state, features, np.ones((500, 2), bool), jax.random.key(0)
  )
  right = np.argmax(features @ weights, axis=1)
  assert np.mean(np.argmax(choice.scores, axis=1) == right) > 0.95
  # Nobody rated an answer, and still the actor has learned from the critic.
  assert np.exp(choice.logps)[np.arange(500), right].mean() > 0.8


def test_nothing_compiles_after_the_first_update_whatever_is_said():
  learner, _ = make(CONFIG)
  state, replay, world = learner.initial, None, World(0)
  state, replay, _ = play(learner, state, world, 10)
  compiled = learner.act._cache_size(), learner.update._cache_size()
  for serial, kind in [(3, 'thumbs'), (4, 'rating')]:
    replay, known = replay_lib.rate(replay, serial, 1.0, kind)
    assert known
  for query in range(10, 300):  # fills the replay and goes on, rating few
    _, features = world.query()
    replay, serial, _ = learner.choose(state, replay, features)
    if query % 7 == 0:
      replay, _ = replay_lib.rate(replay, serial, 0.5, 'pair')
    if learner.due(replay):
      state, metrics = learner.update(state, replay)
  assert all(np.isfinite(v) for v in metrics.values())
  assert compiled == (learner.act._cache_size(), learner.update._cache_size())


@pytest.mark.slow
@pytest.mark.timed
def test_an_update_takes_less_than_twenty_milliseconds():
  learner, state = start(CONFIG, 0)
  state, replay, _ = play(learner, state, World(0), 300, 'random')
  # As users compile it: the suite may compile quickly what then runs slowly.
  update = learner.update.lower(state, replay).compile(
    {'xla_backend_optimization_level': 3, 'xla_cpu_use_fusion_emitters': True}
  )
  seconds = []
  for _ in range(20):
    # Of all threads of this process: others may have most of the cores.
    began = time.process_time()
    jax.block_until_ready(update(state, replay))
    seconds.append(time.process_time() - began)
  assert min(seconds) < 0.02 * slowness()


def test_without_feedback_nothing_is_learned_and_late_feedback_counts():
  learner, state = start(CONFIG, 0)
  replay, world = replay_lib.empty(CONFIG), World(0)
  answered = []
  for query in range(20):
    asked, features = world.query()
    replay, serial, choice = learner.choose(state, replay, features)
    value = world.satisfaction(asked, query)[choice.shown]
    answered.append((serial, value))
  silent, _ = learner.update(state, replay)
  for before, after in zip(
    jax.tree.leaves(state.params['critic']),
    jax.tree.leaves(silent.params['critic']),
    strict=True,
  ):
    np.testing.assert_allclose(before, after, rtol=1e-4)
  for serial, value in answered:
    replay, known = replay_lib.rate(replay, serial, value, 'rating')
    assert known
  for _ in range(5):
    state, _ = learner.update(state, replay)
  rows = np.arange(20), replay.shown[:20]
  choice = learner.act(
    state, replay.features[:20], replay.mask[:20], jax.random.key(0)
  )
  told = np.asarray(choice.scores)[rows]
  assert np.corrcoef(told, replay.reward[:20])[0, 1] > 0.8


def test_late_feedback_on_first_guesses_is_no_change_of_taste():
  learner, state = start(CONFIG, 1)
  replay, world, late = replay_lib.empty(CONFIG), World(1), []
  for moment in range(40):
    query, features = world.query()
    replay, serial, choice = learner.choose(state, replay, features)
    late.append((serial, world.satisfaction(query, moment)[choice.shown]))
  state, replay, _ = play(learner, state, world, 100, replay=replay, start=40)
  for serial, value in late:
    replay, known = replay_lib.rate(replay, serial, value, 'rating')
    assert known
  state, _ = learner.update(state, replay)
  assert state.changed == -1


def test_candidates_that_are_not_there_are_never_chosen():
  learner, state = start(CONFIG, 0)
  features = np.random.default_rng(0).normal(size=(200, 5, FEATURES))
  mask = np.tile([True, False, True, False, False], (200, 1))
  mask[100:, 2] = False
  choice = learner.act(state, features, mask, jax.random.key(1))
  assert mask[np.arange(200), choice.shown].all()
  assert mask[np.arange(200), choice.other].all()
  assert np.all(choice.shown[:100] != choice.other[:100])
  p = np.where(mask, np.exp(choice.logps), 0)
  np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-5)
  np.testing.assert_allclose(p[:100, 0], 0.5, rtol=1e-5)  # uniform at first


def test_resume_equals_the_uninterrupted_run_bit_for_bit(tmp_path):
  learner, state = start(CONFIG, 3)
  template = GPRORun(state, replay_lib.empty(CONFIG))
  state, replay, _ = play(learner, state, World(3), 30)
  with checkpoint.open_checkpoints(tmp_path) as checkpoints:
    checkpoint.save_checkpoint(checkpoints, GPRORun(state, replay), {})
  with checkpoint.open_checkpoints(tmp_path) as checkpoints:
    run, _ = checkpoint.restore_checkpoint(checkpoints, template)
  jax.tree.map(np.testing.assert_array_equal, run, GPRORun(state, replay))
  ends = [
    play(learner, s, World(4), 20, replay=r, start=30)[:2]
    for s, r in ((state, replay), (run.state, run.replay))
  ]
  jax.tree.map(np.testing.assert_array_equal, *ends)
  other, _, _ = play(learner, start(CONFIG, 4)[1], World(3), 30)
  assert not np.array_equal(other.key_data, state.key_data)


def test_a_new_actor_is_judged_before_it_goes_live():
  learner, state = start(CONFIG, 0)
  world = World(0)
  state, _, _ = play(learner, state, world, 200)
  _, log, values = play(learner, state, world, 250, 'random', start=200)
  rows = log.serial >= 0
  choice = learner.act(state, log.features, log.mask, jax.random.key(0))
  estimate = off_policy.evaluate(log, choice.logps)
  assert estimate.queries == rows.sum() == 250
  assert estimate.logged == pytest.approx(values['value'].mean(), abs=0.05)
  assert estimate.gain_low > 0
  _, _, live = play(learner, state, world, 250, start=450)
  assert estimate.low - 0.03 <= live['value'].mean() <= estimate.high + 0.03


class Actor:
  """Has an opinion on temperatures, or none."""

  def __init__(self, temperature):
    self.temperature = temperature


@pytest.mark.parametrize(('chosen', 'expected'), [(0.3, 0.3), (None, 0.7)])
def test_the_temperature_of_the_actor_reaches_the_backend(chosen, expected):
  backend = ScriptedBackend(lambda request: request.messages[0].content)
  actor = Actor(chosen)
  answers = backend.complete(
    candidate_requests(
      ['Short.', 'Long.'], 'Why?', temperature=actor.temperature
    )
  )
  assert [answer.text for answer in answers] == ['Short.', 'Long.']
  (requests,) = backend.batches
  assert [r.temperature for r in requests] == [expected] * 2
  assert requests[0].seed != requests[1].seed
  assert {r.messages[1].content for r in requests} == {'Why?'}


@pytest.mark.slow
def test_the_temperature_is_learned_for_each_kind_of_query():
  """Of two kinds of queries, one likes it cold and the other one hot."""
  config = GPROConfig(
    features=3, candidates=3, temperatures=(0.1, 1.0), context=2
  )
  learner, state = start(config, 0)
  replay, rng = replay_lib.empty(config), np.random.default_rng(0)
  for query in range(300):
    kind = query % 2
    context = np.eye(2)[kind]
    chosen = learner.temperature(
      state,
      context[None],
      learner_lib.act_key(state, query, 'temperature'),
    )
    index = int(chosen.index[0])
    quality = 1.0 if index == kind else -1.0
    features = np.stack([np.full(3, quality), *rng.normal(size=(2, 3))], 1)
    replay, serial, choice = learner.choose(
      state,
      replay,
      features,
      context=context,
      temperature=index,
      temperature_logp=float(chosen.logp[0]),
    )
    z = features[choice.shown] @ [0.8, 0.5, 0.0] + 0.2 * rng.normal()
    rating = round(4 / (1 + np.exp(-z))) / 4
    replay, _ = replay_lib.rate(replay, serial, rating, 'rating')
    if learner.due(replay):
      state, _ = learner.update(state, replay)
  many = np.repeat(np.eye(2), 200, axis=0)
  chosen = learner.temperature(state, many, jax.random.key(0))
  assert np.mean(chosen.value[:200] == np.float32(0.1)) > 0.8
  assert np.mean(chosen.value[200:] == np.float32(1.0)) > 0.8
  with pytest.raises(ValueError, match=r'temperatures=\(\)'):
    plain, first = start(CONFIG, 0)
    plain.temperature(first, many, jax.random.key(0))
