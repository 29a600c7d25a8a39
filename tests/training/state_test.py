"""The train state and its keys."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import optax

from promptrl_jax.training.state import (
  create_train_state,
  step_key,
)


def init_fn(key):
  return {'w': jax.random.normal(key, (3,))}


def create(seed=0):
  return create_train_state(init_fn, optax.adam(1e-3), jax.random.key(seed))


def draw(state, purpose):
  return float(jax.random.uniform(step_key(state, purpose)))


def test_state_depends_on_the_seed_alone():
  assert jnp.array_equal(create().params['w'], create().params['w'])
  assert not jnp.array_equal(create(0).params['w'], create(1).params['w'])


def test_keys_differ_by_step_and_by_purpose_and_nothing_else():
  state = create()
  later = state.replace(step=state.step + 1)
  trained = state.replace(params={'w': jnp.zeros(3)})
  draws = [
    draw(s, purpose)
    for s in (state, later)
    for purpose in ('rollout', 'update')
  ]
  assert len(set(draws)) == 4
  assert draw(trained, 'rollout') == draws[0]
