"""Training of the controller: walk, learning signal, resume."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from promptrl_jax.envs.editing.config import EditingConfig
from promptrl_jax.envs.editing.env import EditingEnv
from promptrl_jax.execution import ExecutionPool
from promptrl_jax.rewards.tests import StepRewardConfig
from promptrl_jax.tasks import splits
from promptrl_jax.testing import tiny
from promptrl_jax.testing.scripted import ScriptedBackend
from promptrl_jax.training import checkpoint
from promptrl_jax.training.controller import cloning
from promptrl_jax.training.controller import learner as learner_lib
from promptrl_jax.training.controller.config import (
  CloneConfig,
  ControllerConfig,
  PPOConfig,
)
from promptrl_jax.training.controller.rollout import (
  as_terminated,
  draw_batch,
  draw_prices,
  make_batch,
  returns_to_go,
  shuffle_returns,
)

CONFIG = ControllerConfig(
  iterations=4,
  episodes=6,
  budgets=(1, 3),
  bootstrap_truncated=False,
  trunk=(16,),
  head=(8,),
)
PPO = PPOConfig(minibatches=2)
PROBLEMS = [splits.reveal_for_training(t, 'visible1') for t in tiny.tasks(8)]


def answer(request):
  return f'\n  return x + {request.seed % 3}'


@pytest.fixture(scope='module')
def env():
  with ExecutionPool(workers=1) as pool:
    yield EditingEnv(
      ScriptedBackend(answer),
      ScriptedBackend(lambda r: ' Add it, please.'),
      pool,
      EditingConfig(max_steps=3, budget=3),
    )


@pytest.fixture(scope='module')
def learner(env):
  return learner_lib.make_learner(CONFIG, PPO, env.config, seed=1)


def iterate(learner, state, env, seed=1):
  rollout, played = learner.sample(state, env, PROBLEMS, seed)
  state, row = learner.update(state, rollout)
  return state, row | played


def play(learner, env, state, iterations):
  rows = []
  for _ in range(iterations):
    state, row = iterate(learner, state, env)
    rows.append({k: v for k, v in row.items() if not k.startswith('time/')})
  return state, rows


def fresh(learner):
  return jax.tree.map(jnp.copy, learner.initial)  # an update donates its state


def test_each_pass_visits_every_problem_once():
  seen = []
  for step in range(8):  # 48 episodes, six passes over 8 problems
    seen += draw_batch(PROBLEMS, CONFIG, 0, step)[0]
  for i in range(0, 48, 8):
    assert sorted(seen[i : i + 8]) == list(range(8))
  assert seen[:8] != seen[8:16]


def test_budgets_are_drawn_from_the_config():
  budgets = draw_batch(PROBLEMS, CONFIG, 0, 0)[2]
  assert set(budgets) <= {1, 3}


def test_resume_equals_the_uninterrupted_run_bit_for_bit(
  learner, env, tmp_path
):
  state, rows = play(learner, env, fresh(learner), 4)
  half, first = play(learner, env, fresh(learner), 2)
  with checkpoint.open_checkpoints(tmp_path) as checkpoints:
    checkpoint.save_checkpoint(checkpoints, half, {})
  with checkpoint.open_checkpoints(tmp_path) as checkpoints:
    half, _ = checkpoint.restore_checkpoint(checkpoints, learner.initial)
  resumed, second = play(learner, env, half, 2)
  assert first + second == rows
  jax.tree.map(np.testing.assert_array_equal, state, resumed)


def test_another_seed_gives_another_run(learner, env):
  _, rows = play(learner, env, fresh(learner), 1)
  _, other = iterate(learner, fresh(learner), env, seed=2)
  assert rows[0]['train/loss'] != other['train/loss']


def test_nothing_compiles_after_the_first_iteration(learner, env):
  state, _ = play(learner, env, fresh(learner), 1)
  compiled = learner.update_fn._cache_size(), learner.act._cache_size()
  play(learner, env, state, 3)
  assert (
    learner.update_fn._cache_size(),
    learner.act._cache_size(),
  ) == compiled


def test_metrics_add_up(learner, env):
  _, (row,) = play(learner, env, fresh(learner), 1)
  shares = [v for k, v in row.items() if k.startswith('rollout/action_')]
  assert sum(shares) == pytest.approx(1.0)
  assert row['budget/calls'] >= row['rollout/steps'] * 0.5


def test_few_worlds_repeat_their_seeds():
  config = dataclasses.replace(CONFIG, worlds=4)
  drawn = [draw_batch(PROBLEMS, config, 2, step)[1] for step in range(3)]
  assert len({seed for seeds in drawn for seed in seeds}) == 4
  assert len(set(draw_batch(PROBLEMS, CONFIG, 2, 0)[1])) == CONFIG.episodes


def test_prices_are_drawn_on_a_logarithmic_scale_and_some_are_free():
  config = dataclasses.replace(
    CONFIG, episodes=6000, continuations=2, token_prices=(0.01, 1.0)
  )
  assert draw_prices(CONFIG, 0, 0) is None
  prices = np.array(draw_prices(config, 0, 0))
  assert len(prices) == config.episodes
  np.testing.assert_array_equal(prices[::2], prices[1::2])
  assert abs(np.mean(prices == 0) - 0.25) < 0.03
  paid = prices[prices > 0]
  assert paid.min() >= 0.01 and paid.max() <= 1.0
  assert abs(np.mean(paid < 0.1) - 0.5) < 0.03  # half of the powers of ten
  assert draw_prices(config, 0, 1) != prices.tolist()
  with pytest.raises(ValueError, match=r'token_prices=\(1.0, 0.5\)'):
    dataclasses.replace(CONFIG, token_prices=(1.0, 0.5))


def test_continuations_start_in_the_same_state():
  config = dataclasses.replace(CONFIG, continuations=3)
  for drawn in draw_batch(PROBLEMS, config, 0, 1):
    assert len(drawn) == CONFIG.episodes
    assert drawn[::3] == drawn[1::3] == drawn[2::3]
  indices = [
    i for step in range(8) for i in draw_batch(PROBLEMS, config, 0, step)[0]
  ]
  assert sorted(indices[::3][:8]) == list(range(8))
  with pytest.raises(ValueError, match='continuations=4.*episodes=6'):
    dataclasses.replace(CONFIG, continuations=4)


def test_an_update_judges_continuations_against_each_other(learner, env):
  config = dataclasses.replace(CONFIG, continuations=3)
  siblings = learner_lib.make_learner(config, PPO, env.config, seed=1)
  rollout, _ = siblings.sample(fresh(siblings), env, PROBLEMS, 1)
  rollout = as_terminated(rollout)
  batch = make_batch(rollout, dataclasses.replace(PPO, normalize='none'), 3)
  first = np.asarray(batch.advantages)[: CONFIG.episodes]
  returns = np.asarray(rollout.rewards * rollout.mask).sum(axis=0)
  others = returns.reshape(2, 3).sum(axis=1, keepdims=True) - returns.reshape(
    2, 3
  )
  expected = returns - (rollout.values[0] + others.ravel()) / 3
  np.testing.assert_allclose(first, expected, atol=1e-5)


def test_shuffled_returns_are_those_of_other_episodes(learner, env):
  rollout, _ = learner.sample(fresh(learner), env, PROBLEMS, 1)
  shuffled = shuffle_returns(rollout, 0)
  totals = lambda r: (r.rewards * r.mask).sum(axis=0)
  np.testing.assert_allclose(
    np.sort(totals(shuffled)), np.sort(totals(rollout)), rtol=1e-6
  )
  assert not np.array_equal(totals(shuffled), totals(rollout))
  assert (np.count_nonzero(shuffled.rewards, axis=0) <= 1).all()
  np.testing.assert_array_equal(
    shuffled.rewards, shuffle_returns(rollout, 0).rewards
  )


def test_returns_to_go_are_sums_of_what_follows(learner, env):
  rollout, _ = learner.sample(fresh(learner), env, PROBLEMS, 1)
  returns = returns_to_go(rollout)
  rewards = rollout.rewards * rollout.mask
  for step in range(len(rewards)):
    np.testing.assert_allclose(
      returns[step], rewards[step:].sum(axis=0), atol=1e-6
    )


def test_a_clone_chooses_as_the_list_does(learner, env):
  lists = {1: ('keep',), 3: ('resample', 'lexical', 'keep')}
  config = CloneConfig(episodes=8, steps=200, lr=1e-2, entropy_coef=0.0)
  played, calls = cloning.demonstrate(env, PROBLEMS, lists, config, 0)
  assert calls >= len(PROBLEMS)
  params = cloning.clone(
    learner.network, learner.initial.params, played, config
  )
  mask = played.mask.reshape(-1)
  rows = lambda x: x.reshape(-1, *x.shape[2:])[mask]
  keys = jax.random.split(jax.random.key(0), mask.sum())
  chosen, _, _ = learner.act_greedy(
    params, rows(played.observations), rows(played.action_masks), keys
  )
  assert np.mean(np.asarray(chosen) == rows(played.actions)) > 0.95


def test_a_potential_is_refused_where_cut_off_episodes_are_bootstrapped():
  shaped = EditingConfig(step_reward=StepRewardConfig(potential=True))
  config = dataclasses.replace(CONFIG, bootstrap_truncated=True)
  with pytest.raises(ValueError, match='potential=True with bootstrap'):
    learner_lib.make_learner(config, PPO, shaped, 0)
