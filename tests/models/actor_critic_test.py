"""The policy and value network of the controller."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from promptrl_jax.models.actor_critic import (
  PROMIS,
  ActorCritic,
  ActorCriticConfig,
)


@pytest.fixture(scope='module')
def promis():
  model = ActorCritic(PROMIS)
  params = jax.jit(model.init)(jax.random.key(0), jnp.zeros((1, 10)))
  return jax.jit(model.apply), params


def test_promis_has_34692_parameters(promis):
  _, params = promis
  assert sum(x.size for x in jax.tree.leaves(params)) == 34_692
  sizes = {
    name: sum(x.size for x in jax.tree.leaves(layer))
    for name, layer in params['params'].items()
  }
  assert sizes['trunk_0'] + sizes['trunk_1'] == 17_920
  assert sizes['actor_0'] + sizes['logits'] == 8_451
  assert sizes['critic_0'] + sizes['value'] == 8_321


def test_default_initialisation_keeps_the_tree():
  config = dataclasses.replace(PROMIS, orthogonal=False)
  shapes = [
    jax.eval_shape(ActorCritic(c).init, jax.random.key(0), jnp.zeros(10))
    for c in (PROMIS, config)
  ]
  assert shapes[0] == shapes[1]


def test_leading_axes_are_free_and_rows_are_independent(promis):
  apply_fn, params = promis
  observations = jax.random.normal(jax.random.key(1), (4, 5, 10))
  logits, values = apply_fn(params, observations)
  assert logits.shape == (4, 5, 3) and values.shape == (4, 5)
  row_logits, row_value = apply_fn(params, observations[2, 3])
  np.testing.assert_allclose(logits[2, 3], row_logits, atol=1e-6)
  np.testing.assert_allclose(values[2, 3], row_value, atol=1e-6)


def test_first_policy_is_nearly_uniform(promis):
  apply_fn, params = promis
  observations = jax.random.normal(jax.random.key(1), (100, 10))
  logits, _ = apply_fn(params, observations)
  np.testing.assert_allclose(jax.nn.softmax(logits), 1 / 3, atol=0.03)


def test_critic_does_not_reach_the_actor_head(promis):
  apply_fn, params = promis
  gradient = jax.grad(lambda p: apply_fn(p, jnp.ones(10))[1])(params)
  assert not jnp.any(gradient['params']['actor_0']['kernel'])
  assert jnp.any(gradient['params']['trunk_0']['kernel'])


def test_wrong_observation_names_both_sizes(promis):
  apply_fn, params = promis
  with pytest.raises(ValueError, match=r'7 features.*configured for 10'):
    apply_fn(params, jnp.ones((2, 7)))


def test_sizes_below_one_are_refused():
  with pytest.raises(ValueError, match='num_actions=0'):
    ActorCriticConfig(observation_size=10, num_actions=0)
