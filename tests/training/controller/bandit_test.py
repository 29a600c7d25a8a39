"""The learner from end to end, on the smallest task that it can learn.

A two-armed contextual bandit: the observation is a sign and a constant, and the
arm that matches the sign pays 1.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from promptrl_jax.envs.editing.rollout import Trajectories
from promptrl_jax.models.actor_critic import ActorCritic, ActorCriticConfig
from promptrl_jax.training.checkpoint import (
  open_checkpoints,
  restore_checkpoint,
  save_checkpoint,
)
from promptrl_jax.training.controller.config import (
  PPOConfig,
)
from promptrl_jax.training.controller.update import (
  make_act_fn,
  make_update_fn,
)
from promptrl_jax.training.state import create_train_state, step_key
from tests.variants import mostly_slow

CONFIG = PPOConfig(lr=3e-3, epochs=2, minibatches=2)
MODEL = ActorCritic(
  ActorCriticConfig(2, 2, trunk=(16,), head=(8,), orthogonal=False)
)
ROWS = 32
update_fn = make_update_fn(MODEL.apply, CONFIG.make_optimizer(100), CONFIG)
act_fn = make_act_fn(MODEL.apply)
greedy_fn = make_act_fn(MODEL.apply, greedy=True)


@functools.cache
def _initial_state():
  def init_fn(key):
    return MODEL.init(key, jnp.zeros((1, 2)))

  return create_train_state(
    init_fn, CONFIG.make_optimizer(100), jax.random.key(0)
  )


def create_state():
  """Returns a state of step 0 that may be donated."""
  return jax.tree.map(jnp.copy, _initial_state())


def play(state, act=act_fn):
  """Returns a rollout `[1, ROWS]`, its arms chosen by the policy."""
  context_key, act_key = jax.random.split(step_key(state, 'rollout'))
  context = jax.random.bernoulli(context_key, 0.5, (ROWS,))
  observations = jnp.stack([2.0 * context - 1, jnp.ones(ROWS)], axis=-1)
  action_masks = jnp.ones((ROWS, 2), bool)
  keys = jax.random.split(act_key, ROWS)
  actions, logps, values = act(state.params, observations, action_masks, keys)
  rollout = Trajectories(
    observations=observations,
    action_masks=action_masks,
    actions=actions,
    logps=logps,
    values=values,
    next_values=jnp.zeros(ROWS),
    rewards=(actions == context).astype(jnp.float32),
    terminated=jnp.ones(ROWS, bool),
    truncated=jnp.zeros(ROWS, bool),
    mask=jnp.ones(ROWS, bool),
  )
  return jax.tree.map(lambda x: x[None], rollout)


def train(state, steps):
  """Returns the state after that many updates, and the last metrics."""
  metrics = {}
  for _ in range(steps):
    state, metrics = update_fn(state, play(state))
  return state, metrics


def assert_bitwise_equal(first, second):
  assert jax.tree.structure(first) == jax.tree.structure(second)
  for x, y in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True):
    assert x.dtype == y.dtype
    assert np.asarray(x).tobytes() == np.asarray(y).tobytes()


@pytest.mark.slow
def test_a_contextual_bandit_is_learned():
  state = create_state()
  assert play(state).rewards.mean() < 0.8
  state, metrics = train(state, 200)
  assert metrics['rollout/reward'] > 0.9
  assert play(state, greedy_fn).rewards.mean() == 1.0
  assert all(jnp.isfinite(value) for value in metrics.values())


@pytest.mark.parametrize('updates', mostly_slow([20, 200], [20]))
def test_updates_are_compiled_once(updates):
  functions = update_fn, act_fn
  for function in functions:
    function.clear_cache()
  train(create_state(), updates)
  assert [f._cache_size() for f in functions] == [1, 1]


def test_resumed_run_equals_the_uninterrupted_run_bit_for_bit(tmp_path):
  whole, whole_metrics = train(create_state(), 7)
  state, _ = train(create_state(), 3)
  with open_checkpoints(tmp_path) as checkpoints:
    save_checkpoint(checkpoints, state, {'cursor': 96, 'spent': 0.25})
    # Training goes on at once, over the buffers that are being saved.
    train(state, 2)
  template = jax.tree.map(jnp.zeros_like, create_state())
  with open_checkpoints(tmp_path) as checkpoints:
    state, extra = restore_checkpoint(checkpoints, template)
  assert extra == {'cursor': 96, 'spent': 0.25}
  assert state.step == 3
  state, metrics = train(state, 4)
  assert_bitwise_equal(state, whole)
  assert_bitwise_equal(metrics, whole_metrics)
