"""Advantages over a leading axis of T environment steps; other axes are free.

Termination and truncation are two flags: a terminated step has no future, a
truncated step was cut off and bootstraps from the value of its next state.
Rewards of the following episode reach neither.
"""

from __future__ import annotations

import chex
import jax
import jax.numpy as jnp


def gae(
  rewards: jax.Array,
  values: jax.Array,
  next_values: jax.Array,
  terminated: jax.Array,
  truncated: jax.Array,
  *,
  gamma: float,
  lam: float,
  mask: jax.Array | None = None,
) -> jax.Array:
  """Returns generalised advantage estimates `[T, ...]`, 0 where invalid.

    delta_t = r_t + gamma (1 - terminated_t) V(s'_t) - V(s_t)
    A_t     = delta_t + gamma lam (1 - terminated_t)(1 - truncated_t) A_{t+1}

  See "High-Dimensional Continuous Control Using Generalized Advantage
  Estimation", Schulman et al., 2016 (https://arxiv.org/abs/1506.02438), eq. 16.
  With `lam=1` this is the Monte-Carlo return minus the value. Advantages are
  not normalised: see `masked.normalize`.

  Args:
    rewards, values: `[T, ...]`, values of the states that were acted in.
    next_values: `[T, ...]`, value of the state that followed, before any
      reset; ignored where the step terminated.
    terminated, truncated: `[T, ...]` bool: the episode ended by its own rules,
      or was cut off.
    gamma: discount.
    lam: weight of longer horizons, 0 to 1.
    mask: `[T, ...]` bool, valid steps; the recursion skips the others,
      wherever they lie.
  """
  arrays = [rewards, values, next_values, terminated, truncated]
  if mask is None:
    mask = jnp.ones(jnp.shape(rewards), bool)
  chex.assert_equal_shape([*arrays, mask])
  terminated = jnp.asarray(terminated, bool)
  ended = terminated | jnp.asarray(truncated, bool)
  valid = jnp.asarray(mask, bool)
  deltas = rewards + gamma * jnp.where(terminated, 0, next_values) - values
  decays = gamma * lam * (1.0 - ended)

  def step(carry, inputs):
    delta, decay, is_valid = inputs
    carry = jnp.where(is_valid, delta + decay * carry, carry)
    return carry, jnp.where(is_valid, carry, 0)

  _, advantages = jax.lax.scan(
    step,
    jnp.zeros(deltas.shape[1:], deltas.dtype),
    (deltas, decays, valid),
    reverse=True,
  )
  return advantages
