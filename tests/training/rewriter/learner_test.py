"""The rewriter's learner, from tasks to changed parameters."""

import dataclasses
import functools
import math
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from promptrl_jax.training.rewriter import algorithms, build
from tests.training import tiny_rewriter
from tests.variants import mostly_slow

learner_of = functools.cache(
  lambda name: tiny_rewriter.make(tiny_rewriter.make_config(name))
)


@pytest.fixture(autouse=True, scope='module')
def compiled_quickly():
  """Programs run for milliseconds here, and there are many."""
  jax.config.update('jax_disable_most_optimizations', True)
  yield
  jax.config.update('jax_disable_most_optimizations', False)


def parameters(state):
  return jax.tree.map(np.asarray, state.train.params)


def equal(first, second):
  assert jax.tree.structure(first) == jax.tree.structure(second)
  pairs = zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True)
  return all(np.array_equal(a, b) for a, b in pairs)


# The smoke run of prewrite trains by PPO.
@pytest.mark.parametrize('name', mostly_slow(algorithms.ALGORITHMS, ('grpo',)))
def test_every_algorithm_learns_and_compiles_once(name, pool):
  learner = learner_of(name)
  before = parameters(learner.initial)
  state, rows = tiny_rewriter.train(learner, tiny_rewriter.make_env(pool), 2)
  assert int(state.step) == 2
  programs = learner.engine.compiled_programs()
  assert (
    learner.updates[0]._cache_size() == 1 and learner.score._cache_size() <= 2
  )
  scores = learner.score._cache_size()
  state, third = tiny_rewriter.train(
    learner, tiny_rewriter.make_env(pool), 1, state
  )
  assert learner.updates[0]._cache_size() == 1
  assert learner.score._cache_size() == scores
  assert learner.engine.compiled_programs() == programs
  assert not equal(before, parameters(state))
  assert rows[0]['rollout/groups'] > 0
  for row in (*rows, *third):
    assert all(math.isfinite(value) for value in row.values()), row
    assert 0 < row['reward/mean'] <= 1
    calls = row['budget/coder_calls'] + row['budget/rewrites']
    assert row['budget/calls'] == calls
    if row['rollout/groups']:  # all may have solved the task by now
      assert row['train/tokens'] == row['rollout/steps'] > 0
      assert row['train/grad_norm'] > 0


@pytest.mark.slow
@pytest.mark.parametrize('name', ['grpo', 'reinforce', 'ppo'])
def test_what_is_rewarded_becomes_likely(name, pool):
  env = tiny_rewriter.make_env(pool)
  _, rows = tiny_rewriter.train(learner_of(name), env, 10)
  rewards = [row['reward/mean'] for row in rows]
  # Half of the rewrites are rewarded at the start, by how it was taught. The
  # mean of 64 of them, had nothing been learned:
  assert np.mean(rewards[-4:]) > 0.5 + 3 * math.sqrt(0.25 / 64), rewards


@pytest.mark.slow
def test_another_algorithm_takes_over_and_the_optimizer_stays(pool):
  env = tiny_rewriter.make_env(pool)
  first, later = (tiny_rewriter.make_config(n) for n in ('grpo', 'pairs'))
  learner = tiny_rewriter.make(
    dataclasses.replace(first, switches=((1, later),))
  )
  state, rows = tiny_rewriter.train(learner, env, 3)
  assert [update._cache_size() for update in learner.updates] == [1, 1]
  assert [row['train/phase'] for row in rows] == [0, 1, 1]
  # The first update is that of a run without a switch, the others are not.
  _, plain = tiny_rewriter.train(learner_of('grpo'), env, 1)
  pick = lambda row: {k: v for k, v in row.items() if k.startswith('train/')}
  assert pick(rows[0]) == pytest.approx(pick(plain[0]), rel=1e-5)
  counts = [
    int(x)
    for x in jax.tree.leaves(state.train.opt_state)
    if x.ndim == 0 and jnp.issubdtype(x.dtype, jnp.integer)
  ]
  assert set(counts) == {sum(row['rollout/groups'] > 0 for row in rows)}


def test_rewards_that_are_all_equal_change_nothing(pool):
  # That of a flagged rewrite is 0 as well.
  env = tiny_rewriter.make_env(pool, reward_fn=lambda *_: 0.0)
  learner = learner_of('grpo')
  state, rows = tiny_rewriter.train(learner, env, 2)
  assert int(state.step) == 2
  assert [row['rollout/groups'] for row in rows] == [0, 0]
  assert equal(parameters(learner.initial), parameters(state))
  # Nor if they are not left out: what they are compared with is themselves.
  config = tiny_rewriter.make_config(
    'grpo', rollout={'drop_uniform': False}, reference={'kind': 'none'}
  )
  learner = tiny_rewriter.make(config)
  state, rows = tiny_rewriter.train(learner, env, 2)
  assert [row['rollout/groups'] for row in rows] == [4, 4]
  assert equal(parameters(learner.initial), parameters(state))


def nth(count, do):
  """A reward function that does something else at its n-th call."""
  lock, calls = threading.Lock(), iter(range(10**9))

  def reward_fn(task, rewrite, verdict):
    with lock:
      call = next(calls)
    return do() if call == count else float(verdict.passed)

  return reward_fn


def test_a_reward_that_is_no_number_leaves_the_others_in(pool):
  env = tiny_rewriter.make_env(pool, reward_fn=nth(3, lambda: math.nan))
  state, (row, after) = tiny_rewriter.train(learner_of('reinforce'), env, 2)
  assert row['reward/dropped'] == 1 and after['reward/dropped'] == 0
  assert row['rollout/groups'] == 4  # the group of the dropped one, too
  assert math.isfinite(row['train/loss'])
  assert all(np.isfinite(x).all() for x in jax.tree.leaves(parameters(state)))


def test_what_raises_or_hangs_is_dropped_and_counted(pool):
  def fail():
    raise KeyError('no such word')

  released = threading.Event()
  failing, hanging = nth(2, fail), nth(5, lambda: released.wait(120) * 0.0)
  lock = threading.Lock()

  def reward_fn(*inputs):
    with lock:  # one call after the other, so that both count the same
      failing(*inputs)
    return hanging(*inputs)

  env = tiny_rewriter.make_env(pool, reward_fn=reward_fn, timeout_s=5.0)
  try:
    _, (row, _) = tiny_rewriter.train(learner_of('reinforce'), env, 2)
  finally:
    released.set()
  assert row['reward/dropped'] == 2
  assert row['rollout/groups'] == 4
  assert row['time/wait_for_verdicts'] >= 5


def test_an_update_whose_groups_are_uniform_says_that_it_learned_nothing(
  pool, caplog
):
  env = tiny_rewriter.make_env(pool, reward_fn=lambda *_: 1.0)
  learner = learner_of('grpo')
  state, (row,) = tiny_rewriter.train(learner, env, 1)
  assert 'update 0 learned nothing' in caplog.text
  assert 'train/loss' not in row and row['rollout/groups'] == 0
  assert equal(parameters(learner.initial), parameters(state))


def test_a_run_in_which_no_program_gets_a_reward_ends(pool):
  env = tiny_rewriter.make_env(pool, reward_fn=lambda *_: math.inf)
  with pytest.raises(RuntimeError, match=r'none of .* the reward is inf'):
    tiny_rewriter.train(learner_of('grpo'), env, 1)


@functools.cache
def overlapping():
  return tiny_rewriter.make(
    tiny_rewriter.make_config(
      overlap=True,
      loss={'importance': 'token'},
      optimizer={'lr': 1e-2},
      rollout={'drop_uniform': False},  # so that every batch is learned from
    )
  )


@pytest.mark.slow
def test_a_batch_sampled_ahead_shows_in_its_importance_weights(pool):
  env = tiny_rewriter.make_env(pool)
  _, rows = tiny_rewriter.train(overlapping(), env, 3)
  current, *ahead = [row['train/mismatch_kl'] for row in rows]
  assert current < 1e-7
  assert all(value > 1e-4 for value in ahead)
  assert all(row['time/sampled_ahead'] > 0 for row in rows)
  # Each batch is of the policy as it is where nothing runs ahead.
  alone = lambda step: True
  _, rows = tiny_rewriter.train(overlapping(), env, 3, is_boundary=alone)
  assert all(row['train/mismatch_kl'] < 1e-7 for row in rows)
  assert all(row['time/sampled_ahead'] == 0 for row in rows)


def test_the_time_line_shows_programs_run_while_the_device_samples(pool):
  slow = lambda task, rewrite, verdict: time.sleep(0.3) or float(len(rewrite))
  env = tiny_rewriter.make_env(pool, reward_fn=slow)
  # The first update compiles; the next has a batch that was sampled before.
  _, (_, row) = tiny_rewriter.train(overlapping(), env, 2)
  assert row['time/programs'] >= 0.3
  assert row['time/overlapped'] > 0.5 * min(
    row['time/programs'], row['time/sampled_ahead']
  )
  alone = lambda step: True
  _, (_, row) = tiny_rewriter.train(overlapping(), env, 2, is_boundary=alone)
  assert row['time/programs'] >= 0.3
  assert row['time/overlapped'] < 0.1
  assert row['time/wait_for_verdicts'] > 0.25


def test_a_run_that_goes_on_at_a_boundary_ends_like_one_that_never_stopped(
  pool,
):
  env, learner = tiny_rewriter.make_env(pool), overlapping()
  boundary = lambda step: step % 2 == 0
  whole, rows = tiny_rewriter.train(learner, env, 4, is_boundary=boundary)
  half, before = tiny_rewriter.train(learner, env, 2, is_boundary=boundary)
  resumed, after = tiny_rewriter.train(
    learner, env, 2, half, is_boundary=boundary
  )
  leaves = lambda tree: jax.tree.map(np.asarray, tree)
  assert equal(leaves(whole), leaves(resumed))
  untimed = lambda rows: [
    {k: v for k, v in row.items() if not k.startswith('time/')} for row in rows
  ]
  assert untimed(rows) == untimed([*before, *after])
  # The second batch of each half was sampled ahead, the first was not.
  stale = [row['train/mismatch_kl'] > 1e-6 for row in rows]
  assert stale == [False, True, False, True]


@pytest.mark.slow
def test_adapters_are_trained_alone_against_the_model_without_them(pool):
  config = tiny_rewriter.make_config(
    parameters='lora',
    reference={'kind': 'adapter_off'},
    rollout={'drop_uniform': False},
    optimizer={'lr': 1e-2},
  )
  learner = tiny_rewriter.make(config)
  model = jax.tree.map(np.array, learner.fixed['params'])
  before = parameters(learner.initial)
  state, rows = tiny_rewriter.train(learner, tiny_rewriter.make_env(pool), 3)
  after = parameters(state)
  assert set(after) == {'adapters'} and not equal(before, after)
  assert equal(model, jax.tree.map(np.asarray, learner.fixed['params']))
  assert state.reference == {}
  # At first an adapter adds nothing.
  assert rows[0]['train/kl'] < 1e-8 < 1e-5 < rows[-1]['train/kl']


def charged(pool, name, **more):
  """Metrics of three updates that charge the divergence."""
  settings = {'rollout': {'drop_uniform': False}, 'optimizer': {'lr': 3e-3}}
  learner = tiny_rewriter.make(
    tiny_rewriter.make_config(name, **settings, **more)
  )
  _, rows = tiny_rewriter.train(learner, tiny_rewriter.make_env(pool), 3)
  assert learner.updates[0]._cache_size() == 1
  assert learner.score_reference._cache_size() == 1
  assert learner.score._cache_size() <= 1
  return rows


EXACT = {'loss': {'kl_estimator': 'exact'}}


@pytest.mark.slow
def test_the_exact_divergence_is_near_its_estimate(pool):
  rows = charged(pool, 'reinforce', **EXACT)
  estimated = charged(pool, 'reinforce')
  found = [row['train/kl'] for row in rows]
  assert found[0] < 1e-6 and min(found[1:]) > 1e-4
  # After the same first step: the same samples, and k3 of their tokens.
  assert 0.25 < found[1] / estimated[1]['train/kl'] < 4


@pytest.mark.slow
def test_the_exact_divergence_of_adapters_begins_at_zero(pool):
  lora = {'parameters': 'lora', 'reference': {'kind': 'adapter_off'}}
  rows = charged(pool, 'reinforce', **EXACT, **lora)
  assert rows[0]['train/kl'] < 1e-6 < rows[2]['train/kl']


@pytest.mark.parametrize(
  ('name', 'charge'),
  [('reinforce_pp', 'auto'), ('reinforce', 'reward')],
  ids=['of tokens', 'of texts'],
)
@pytest.mark.slow
def test_the_exact_divergence_may_be_charged_as_a_reward(pool, name, charge):
  paid = {'kl_estimator': 'exact', 'charge_kl': charge}
  rows = charged(pool, name, advantage=paid)
  assert all(math.isfinite(row['train/loss']) for row in rows)


@pytest.mark.slow
def test_another_model_may_be_the_reference(pool):
  other = dataclasses.replace(
    tiny_rewriter.tiny.CONFIG, hidden_size=16, num_layers=1
  )
  params = dict(tiny_rewriter.tiny.params(other, seed=3))
  config = tiny_rewriter.make_config(
    reference={'kind': 'model', 'model': 'other'},
    loss={'kl_estimator': 'exact'},
    rollout={'drop_uniform': False},
  )
  learner = tiny_rewriter.make(config, (other, params))
  env = tiny_rewriter.make_env(pool)
  state, rows = tiny_rewriter.train(learner, env, 2)
  assert state.reference == {}
  assert all(row['train/kl'] > 0.5 for row in rows)  # from the first update on
  plain = tiny_rewriter.make_config(reference=config.reference.__dict__)
  wider = dataclasses.replace(other, vocab_size=320)

  def check(settings, reference):
    start = tiny_rewriter.start_of(
      learner.policy.model, {}, tiny_rewriter.tiny.tokenizer(), (reference, {})
    )
    build.check_reference(settings, start)

  check(plain, wider)
  for settings, change, message in (
    (config, {'vocab_size': 320}, 'expected the same, or another kl_estimator'),
    (plain, {'vocab_size': 290}, 'of 290, the policy one of 300: expected at'),
    (plain, {'max_positions': 87}, 'exceed the context of the reference, 87'),
  ):
    with pytest.raises(ValueError, match=message):
      check(settings, dataclasses.replace(other, **change))


@pytest.mark.slow
def test_groups_that_say_nothing_are_drawn_again(pool):
  learner, lock, calls = (
    learner_of('dapo'),
    threading.Lock(),
    iter(range(10**9)),
  )

  def reward_fn(task, rewrite, verdict):
    with lock:
      call = next(calls)
    return 0.0 if call < 16 else float(call % 2)

  env = tiny_rewriter.make_env(pool, reward_fn=reward_fn)
  _, (row,) = tiny_rewriter.train(learner, env, 1)
  # All of the first four groups got 0, whether flagged or not.
  assert row['rollout/rounds'] >= 2 and row['budget/rewrites'] >= 32
  assert row['rollout/groups'] >= 1
  assert learner.updates[0]._cache_size() == 1


@pytest.mark.parametrize(
  ('name', 'settings', 'message'),
  [
    ('grpo', {'rollout': {'group': 1}}, "a group of 1 with .* 'grpo'"),
    ('rloo', {'rollout': {'group': 1}}, "a group of 1 with .* 'rloo'"),
    (
      'reinforce',
      {'rollout': {'group': 1, 'drop_uniform': True}},
      'a group of 1 with drop_uniform=True',
    ),
    ('grpo', {'overlap': True}, 'overlap=True with importance=none'),
    ('grpo', {'optimizer': {'decay': 'cosine'}}, "decay='cosine'"),
    (
      'grpo',
      {'advantage': {'kl_estimator': 'exact'}},
      'and the divergence is no reward',
    ),
    (
      'ppo',
      {'loss': {'kl_estimator': 'exact'}},
      "with the advantage 'gae' and charge_kl='auto', which leave no",
    ),
  ],
)
def test_settings_that_cannot_work_are_refused(name, settings, message):
  with pytest.raises(ValueError, match=message):
    tiny_rewriter.make_config(name, **settings)


@pytest.mark.parametrize(
  ('settings', 'message'),
  [
    (
      {'rollout': {'new_tokens': 25}},
      'lane_size=24 is less than new_tokens=25',
    ),
    (
      {'packing': {'prompt_size': 16}},
      'prompt_size=16 is less than the longest prompt, 32',
    ),
    ({'reference': {'kind': 'adapter_off'}}, "needs parameters='lora'"),
  ],
)
def test_a_model_that_does_not_fit_its_settings_is_refused(settings, message):
  with pytest.raises(ValueError, match=message):
    tiny_rewriter.make(tiny_rewriter.make_config(**settings))
