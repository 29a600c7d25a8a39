"""Value and reward heads: first outputs, range, and training."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import PartitionSpec as P

from promptrl_jax.models import encoder as encoder_lib
from promptrl_jax.models import heads
from promptrl_jax.models.encoder import Encoder, EncoderConfig
from promptrl_jax.models.heads import RewardHead, RewardModel, ValueHead
from promptrl_jax.models.transformer import Transformer
from promptrl_jax.parallel import sharding
from promptrl_jax.testing import tiny

CONFIG = EncoderConfig(
  vocab_size=50,
  hidden_size=32,
  num_layers=2,
  num_heads=4,
  mlp_size=48,
  max_positions=12,
)


@pytest.fixture(scope='module')
def hidden():
  """Hidden states [2, 9, D] of a causal language model."""
  tokens = jnp.asarray(np.random.default_rng(0).integers(3, 300, (2, 9)))
  positions = jnp.broadcast_to(jnp.arange(9), tokens.shape)
  mask = jnp.tril(jnp.ones((1, 9, 9), bool))
  model = Transformer(tiny.CONFIG)
  return jax.jit(model.apply)(tiny.params(), tokens, positions, mask)[0]


@pytest.fixture(scope='module')
def pairs():
  """32 pairs of texts and their ratings."""
  rng = np.random.default_rng(1)
  lengths = rng.integers(4, 13, (32, 1))
  mask = np.arange(12) < lengths
  tokens = np.where(mask, rng.integers(1, 50, mask.shape), 0)
  types = ((np.arange(12) >= lengths // 2) & mask).astype(np.int32)
  return tokens, mask, types, rng.random(32).astype(np.float32)


def random_params(shapes):
  """As `init` would draw them, but without compiling it."""
  rng = np.random.default_rng(2)
  draw = lambda path, leaf: jnp.asarray(
    rng.normal(path[-1].key == 'scale', 0.02, leaf.shape), leaf.dtype
  )
  return jax.tree.map_with_path(draw, shapes)


def train(loss_fn, params, optimizer, steps):
  """Parameters after `steps` updates, and the loss before each."""

  def step(carry, key):
    params, state = carry
    loss, gradient = jax.value_and_grad(loss_fn)(params, key)
    updates, state = optimizer.update(gradient, state, params)
    return (optax.apply_updates(params, updates), state), loss

  keys = jax.random.split(jax.random.key(7), steps)
  run = jax.jit(lambda carry: jax.lax.scan(step, carry, keys))
  (params, _), losses = run((params, optimizer.init(params)))
  return params, losses


def test_values_are_float32_one_per_token_and_start_at_zero(hidden):
  half = hidden.astype(jnp.bfloat16)
  params = ValueHead().init(jax.random.key(0), half)
  values = ValueHead().apply(params, half)
  assert values.shape == (2, 9) and values.dtype == jnp.float32
  assert not jnp.any(values)
  random = ValueHead(zero_init=False)
  params = random.init(jax.random.key(0), hidden)
  assert jnp.std(random.apply(params, hidden)) > 0.01


def test_a_value_is_the_linear_function_of_its_own_state(hidden):
  kernel = np.linspace(-1, 1, hidden.shape[-1], dtype=np.float32)
  params = {'params': {'kernel': kernel, 'bias': np.float32(0.5)}}
  expected = np.einsum('btd,d->bt', hidden, kernel) + 0.5
  values = ValueHead().apply(params, hidden)
  np.testing.assert_allclose(values, expected, atol=1e-5)


def test_the_value_loss_falls(hidden):
  head = ValueHead()
  returns = jnp.linspace(-1, 1, 18).reshape(2, 9)
  loss_fn = lambda params, key: jnp.mean(
    jnp.square(head.apply(params, hidden) - returns)
  )
  params = head.init(jax.random.key(0), hidden)
  params, losses = train(loss_fn, params, optax.adam(0.03), 200)
  np.testing.assert_allclose(losses[0], jnp.mean(returns**2), rtol=1e-5)
  assert loss_fn(params, None) < 0.1 * losses[0]


def test_a_reward_is_the_sigmoid_of_the_linear_function():
  pooled = np.random.default_rng(0).normal(size=(5, 8)) * 3
  kernel = np.arange(8, dtype=np.float32) / 8
  params = {'params': {'kernel': kernel, 'bias': np.float32(-0.2)}}
  expected = 1 / (1 + np.exp(-(pooled @ kernel - 0.2)))
  rewards = RewardHead().apply(params, pooled)
  np.testing.assert_allclose(rewards, expected, atol=1e-6)


def test_dropout_leaves_out_a_tenth_in_training_alone():
  pooled = jnp.ones((4000, 16))
  params = {'params': {'kernel': jnp.full(16, 0.1), 'bias': jnp.float32(0)}}
  apply_fn = lambda seed: RewardHead().apply(
    params, pooled, deterministic=False, rngs={'dropout': jax.random.key(seed)}
  )
  kept = jax.scipy.special.logit(apply_fn(0)) / 0.1 * 0.9
  np.testing.assert_allclose(np.mean(kept) / 16, 0.9, atol=0.01)
  assert np.any(apply_fn(0) != apply_fn(1))
  sure = RewardHead().apply(params, pooled)
  np.testing.assert_allclose(sure, jax.nn.sigmoid(1.6), rtol=1e-6)


def test_rewards_of_extreme_features_stay_in_the_unit_interval():
  params = {'params': {'kernel': jnp.ones(2), 'bias': jnp.float32(0)}}
  pooled = jnp.asarray([[1e6, 1e6], [-1e6, -1e6]])
  assert RewardHead().apply(params, pooled).tolist() == [1.0, 0.0]


def test_encoder_and_reward_head_overfit_32_pairs(pairs):
  tokens, mask, types, ratings = pairs
  model = RewardModel(CONFIG)
  params = random_params(heads.shapes(CONFIG))

  def loss_fn(params, key):
    rewards = model.apply(
      params, tokens, mask, types, deterministic=False, rngs={'dropout': key}
    )
    return jnp.mean(jnp.square(rewards - ratings))

  optimizer = optax.adamw(3e-3, weight_decay=1e-5)
  params, losses = train(loss_fn, params, optimizer, 100)
  rewards = jax.jit(model.apply)(params, tokens, mask, types)
  assert rewards.shape == (32,) and rewards.dtype == jnp.float32
  assert rewards.min() >= 0 and rewards.max() <= 1
  assert np.var(ratings) > 0.05 and losses[0] > 0.05
  assert np.mean(np.square(rewards - ratings)) < 0.01


def test_a_trained_encoder_takes_its_place_in_the_reward_model(pairs):
  tokens, mask, types, _ = pairs
  encoder = Encoder(CONFIG)
  trained = random_params(encoder_lib.shapes(CONFIG))
  head = {'kernel': jnp.ones(32), 'bias': jnp.float32(0)}
  params = {'params': {'encoder': trained['params'], 'head': head}}
  actual = jax.tree.map(jnp.shape, params)
  expected = jax.tree.map(jnp.shape, heads.shapes(CONFIG))
  assert actual == expected
  hidden = jax.jit(encoder.apply)(trained, tokens, mask, types)
  pooled = hidden[:, 0]
  model = RewardModel(CONFIG, 'first')
  rewards = jax.jit(model.apply)(params, tokens, mask, types)
  np.testing.assert_allclose(
    rewards, jax.nn.sigmoid(pooled.sum(axis=1)), atol=1e-6
  )


def test_partition_splits_the_encoder_and_leaves_the_head_whole():
  leaves, _ = jax.tree.flatten_with_path(heads.shapes(CONFIG))
  specs = {
    name: sharding.spec_of(name, heads.PARTITION)
    for name in (sharding.path_of(path) for path, _ in leaves)
  }
  assert specs['encoder/layers/up'] == P(None, 'fsdp', 'tensor')
  assert specs['head/kernel'] == P()
