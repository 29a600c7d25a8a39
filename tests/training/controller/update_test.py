"""The PPO update, with the real network and optimizer."""

from __future__ import annotations

import dataclasses
import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from promptrl_jax.envs.editing.rollout import Trajectories
from promptrl_jax.models.actor_critic import ActorCritic, ActorCriticConfig
from promptrl_jax.training.controller.config import (
  PROMIS,
  PPOConfig,
)
from promptrl_jax.training.controller.rollout import make_batch
from promptrl_jax.training.controller.update import (
  make_act_fn,
  make_update_fn,
)
from promptrl_jax.training.state import TrainState
from tests.variants import mostly_slow

MODEL = ActorCritic(
  ActorCriticConfig(4, 3, trunk=(16,), head=(8,), orthogonal=False)
)
FULL_BATCH = PPOConfig(minibatches=1, epochs=1)


@functools.cache
def initial_params():
  return jax.jit(MODEL.init)(jax.random.key(0), jnp.zeros((1, 4)))


@functools.cache
def cached_update_fn(config):
  return make_update_fn(MODEL.apply, config.make_optimizer(100), config)


def create_state(config):
  """Returns a state of step 0 that may be donated."""
  params = jax.tree.map(jnp.copy, initial_params())
  return TrainState(
    params=params,
    opt_state=config.make_optimizer(100).init(params),
    step=jnp.zeros((), jnp.int32),
    key_data=jax.random.key_data(jax.random.key(0)),
  )


def make_rollout(seed=0, steps=6, rows=4):
  """Returns random transitions; columns end early, like episodes do."""
  rng = np.random.default_rng(seed)
  shape = (steps, rows)
  lengths = rng.integers(1, steps + 1, rows)
  mask = np.arange(steps)[:, None] < lengths
  values = rng.normal(size=(4, *shape)).astype(np.float32)
  action_masks = rng.random((*shape, 3)) < 0.7
  actions = rng.integers(0, 3, shape)
  np.put_along_axis(action_masks, actions[..., None], True, axis=-1)
  return Trajectories(
    observations=rng.normal(size=(*shape, 4)).astype(np.float32),
    action_masks=action_masks,
    actions=actions.astype(np.int32),
    logps=values[0] * 0.1 - 1,
    values=values[1],
    next_values=values[2],
    rewards=values[3],
    terminated=rng.random(shape) < 0.2,
    truncated=rng.random(shape) < 0.2,
    mask=mask,
  )


def update(rollout, config):
  return cached_update_fn(config)(create_state(config), rollout)


def assert_same_params(first, second, atol):
  jax.tree.map(
    lambda x, y: np.testing.assert_allclose(x, y, atol=atol),
    first.params,
    second.params,
  )


def test_padding_steps_and_rows_leave_the_parameters_the_same():
  rollout = make_rollout()

  def pad(x):
    value = {'f': np.nan, 'i': -7, 'b': True}[x.dtype.kind]
    widths = [(1, 2), (3, 0)] + [(0, 0)] * (x.ndim - 2)
    return np.pad(x, widths, constant_values=value)

  mask = np.pad(rollout.mask, [(1, 2), (3, 0)])
  padded = dataclasses.replace(jax.tree.map(pad, rollout), mask=mask)
  state, metrics = update(rollout, FULL_BATCH)
  padded_state, padded_metrics = update(padded, FULL_BATCH)
  assert_same_params(state, padded_state, atol=1e-6)
  for name, value in metrics.items():
    np.testing.assert_allclose(padded_metrics[name], value, rtol=1e-4)


def test_what_invalid_steps_hold_is_irrelevant_with_minibatches():
  config = PPOConfig(minibatches=2)
  rollout = make_rollout()
  assert not rollout.mask.all()

  def spoil(x):
    mask = rollout.mask.reshape(rollout.mask.shape + (1,) * (x.ndim - 2))
    value = {'f': np.nan, 'i': -7, 'b': False}[x.dtype.kind]
    return np.where(mask, x, value).astype(x.dtype)

  state, _ = update(rollout, config)
  spoiled, _ = update(jax.tree.map(spoil, rollout), config)
  assert_same_params(state, spoiled, atol=0)


def test_shuffling_depends_on_the_step_and_the_base_key():
  config = PPOConfig(minibatches=2)
  state = create_state(config)
  step = jnp.ones((), jnp.int32)
  key_data = jax.random.key_data(jax.random.key(1))
  results = [
    cached_update_fn(config)(jax.tree.map(jnp.copy, start), make_rollout())[0]
    for start in (
      state,
      state,
      state.replace(step=step),
      state.replace(key_data=key_data),
    )
  ]
  assert_same_params(results[0], results[1], atol=0)
  for other in results[2:]:
    with pytest.raises(AssertionError):
      assert_same_params(results[0], other, atol=1e-6)


def test_a_rollout_without_valid_steps_moves_only_the_step_number():
  state, _ = update(make_rollout(), FULL_BATCH)
  before = jax.tree.map(np.array, state)
  empty = dataclasses.replace(make_rollout(), mask=np.zeros((6, 4), bool))
  after, metrics = cached_update_fn(FULL_BATCH)(state, empty)
  assert after.step == before.step + 1
  assert metrics['rollout/steps'] == 0
  for old, new in [
    (before.params, after.params),
    (before.opt_state, after.opt_state),
  ]:
    jax.tree.map(np.testing.assert_array_equal, old, new)


def test_micro_batches_do_not_change_the_update():
  config = PPOConfig(minibatches=2)
  split = dataclasses.replace(config, micro_batches=3)
  state, _ = update(make_rollout(), config)
  split_state, _ = update(make_rollout(), split)
  assert_same_params(state, split_state, atol=1e-5)


def test_steps_that_do_not_divide_are_padded_with_invalid_ones():
  batch = make_batch(make_rollout(), PPOConfig(minibatches=5, micro_batches=2))
  assert {x.shape[0] for x in jax.tree.leaves(batch)} == {30}
  assert not batch.mask[24:].any()
  assert batch.mask.sum() == make_rollout().mask.sum()


def test_advantages_are_normalised_once_over_the_valid_rollout():
  rollout = make_rollout()
  batch = make_batch(rollout, PPOConfig(minibatches=1))
  valid = np.asarray(batch.advantages)[np.asarray(batch.mask)]
  np.testing.assert_allclose([valid.mean(), valid.std()], [0, 1], atol=1e-5)
  raw = make_batch(rollout, PPOConfig(minibatches=1, normalize='none'))
  expected = np.where(raw.mask, raw.returns - raw.old_values, 0)
  np.testing.assert_allclose(raw.advantages, expected, atol=1e-6)
  np.testing.assert_array_equal(raw.returns, batch.returns)


def test_promis_advantages_are_monte_carlo_returns_minus_values():
  """One episode of three steps that passes at the last."""
  rollout = Trajectories(
    observations=jnp.zeros((3, 1, 4)),
    action_masks=jnp.ones((3, 1, 3), bool),
    actions=jnp.zeros((3, 1), jnp.int32),
    logps=jnp.full((3, 1), -1.0),
    values=jnp.array([[0.5], [0.4], [0.3]]),
    next_values=jnp.array([[0.4], [0.3], [9.0]]),
    rewards=jnp.array([[-0.1], [-0.1], [1.0]]),
    terminated=jnp.array([[False], [False], [True]]),
    truncated=jnp.zeros((3, 1), bool),
    mask=jnp.ones((3, 1), bool),
  )
  batch = make_batch(rollout, PROMIS)
  np.testing.assert_allclose(batch.returns, [0.7811, 0.89, 1.0], atol=1e-6)
  raw = np.array([0.2811, 0.49, 0.7])
  expected = (raw - raw.mean()) / raw.std(ddof=1)
  np.testing.assert_allclose(batch.advantages, expected, atol=1e-4)
  assert (PROMIS.lr, PROMIS.gamma, PROMIS.clip) == (3e-4, 0.99, 0.2)
  assert (PROMIS.epochs, PROMIS.value_coef) == (4, 0.5)
  assert (PROMIS.entropy_coef, PROMIS.max_grad_norm) == (0.01, 0.5)


def test_metrics_of_one_step_equal_the_loss_worked_in_numpy():
  config = FULL_BATCH
  rollout = make_rollout()
  logits, values = MODEL.apply(initial_params(), rollout.observations)
  batch = make_batch(rollout, config)
  logits = np.where(rollout.action_masks, logits, -np.inf)
  p = np.exp(logits - logits.max(-1, keepdims=True))
  p /= p.sum(-1, keepdims=True)
  taken = np.take_along_axis(p, np.asarray(rollout.actions)[..., None], -1)
  ratio = (taken[..., 0] / np.exp(rollout.logps)).reshape(-1)
  valid = np.asarray(batch.mask)
  policy = -np.minimum(
    ratio * batch.advantages, np.clip(ratio, 0.8, 1.2) * batch.advantages
  )[valid].mean()
  value = np.square(values.reshape(-1) - batch.returns)[valid].mean()
  entropy = -np.where(p > 0, p * np.log(np.maximum(p, 1e-30)), 0).sum(-1)
  entropy = entropy.reshape(-1)[valid].mean()
  _, metrics = update(rollout, config)
  np.testing.assert_allclose(metrics['train/policy_loss'], policy, rtol=1e-4)
  np.testing.assert_allclose(metrics['train/value_loss'], value, rtol=1e-4)
  np.testing.assert_allclose(metrics['train/entropy'], entropy, rtol=1e-4)
  total = policy + 0.5 * value - 0.01 * entropy
  np.testing.assert_allclose(metrics['train/loss'], total, rtol=1e-4)


PPO_CHANGES = {
  'lr': 1e-3,
  'anneal': False,
  'adam_epsilon': 1e-8,
  'max_grad_norm': None,
  'gamma': 0.9,
  'gae_lambda': 1.0,
  'clip': 0.1,
  'value_clip': 0.2,
  'value_coef': 1.0,
  'entropy_coef': 0.1,
  'normalize': 'none',
  'normalize_ddof': 1,
  'epochs': 2,
  'minibatches': 2,
  'micro_batches': 2,
}

# One each of the optimizer, the advantages, the loss and the batches.
EVERY_TIME = ('lr', 'gae_lambda', 'clip', 'entropy_coef', 'minibatches')


def program(**changes):
  """What an update computes, as text; nothing is compiled."""
  config = PPOConfig(**changes)
  update_fn = make_update_fn(MODEL.apply, config.make_optimizer(100), config)
  text = str(jax.make_jaxpr(update_fn)(create_state(config), make_rollout()))
  return re.sub('0x[0-9a-f]+', '', text)  # addresses of functions


@pytest.fixture(scope='module')
def usual_program():
  return program()


def test_every_setting_has_a_row_and_is_all_that_a_program_depends_on(
  usual_program,
):
  assert PPO_CHANGES.keys() == {f.name for f in dataclasses.fields(PPOConfig)}
  assert program() == usual_program


@pytest.mark.parametrize('name', mostly_slow(PPO_CHANGES, EVERY_TIME))
def test_each_setting_changes_the_update(name, usual_program):
  assert program(**{name: PPO_CHANGES[name]}) != usual_program


def test_actions_respect_masks_and_carry_their_log_probability():
  params = initial_params()
  rollout = make_rollout(rows=200, steps=1)
  observations, masks = rollout.observations[0], rollout.action_masks[0]
  keys = jax.random.split(jax.random.key(0), 200)
  logits, _ = MODEL.apply(params, observations)
  logps = jax.nn.log_softmax(jnp.where(masks, logits, -jnp.inf))
  for greedy in (False, True):
    act_fn = make_act_fn(MODEL.apply, greedy=greedy)
    actions, got, values = act_fn(params, observations, masks, keys)
    taken = jnp.take_along_axis(masks, actions[:, None], axis=-1)
    assert taken.all()
    expected = jnp.take_along_axis(logps, actions[:, None], axis=-1)[:, 0]
    np.testing.assert_allclose(got, expected, atol=1e-5)
    assert values.shape == (200,)
    if greedy:
      np.testing.assert_array_equal(actions, logps.argmax(-1))


def test_a_sampled_action_depends_on_its_own_row_alone():
  params = initial_params()
  act_fn = make_act_fn(MODEL.apply)
  rollout = make_rollout(rows=8, steps=1)
  keys = jax.random.split(jax.random.key(0), 8)
  arguments = (rollout.observations[0], rollout.action_masks[0], keys)
  actions, _, _ = act_fn(params, *arguments)
  one, _, _ = act_fn(params, *(x[5:6] for x in arguments))
  assert one[0] == actions[5]


@pytest.mark.parametrize(
  'change',
  [{'normalize': 'batch'}, {'epochs': 0}, {'minibatches': 0}, {'gamma': 1.5}],
)
def test_settings_out_of_range_are_refused_by_name(change):
  with pytest.raises(ValueError, match=next(iter(change))):
    PPOConfig(**change)
