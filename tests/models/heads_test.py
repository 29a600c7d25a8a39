"""Value head: first outputs, range, and training."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from promptrl_jax.models.heads import ValueHead
from promptrl_jax.models.transformer import Transformer
from promptrl_jax.testing import tiny


@pytest.fixture(scope='module')
def hidden():
  """Hidden states [2, 9, D] of a causal language model."""
  tokens = jnp.asarray(np.random.default_rng(0).integers(3, 300, (2, 9)))
  positions = jnp.broadcast_to(jnp.arange(9), tokens.shape)
  mask = jnp.tril(jnp.ones((1, 9, 9), bool))
  model = Transformer(tiny.CONFIG)
  return jax.jit(model.apply)(tiny.params(), tokens, positions, mask)[0]


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
