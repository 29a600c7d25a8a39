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


def sibling_advantages(
  returns: jax.Array,
  values: jax.Array,
  actions: jax.Array,
  groups: jax.Array,
  *,
  mask: jax.Array,
) -> jax.Array:
  """Returns advantages of decisions against others of the same state `[T, N]`.

  Episodes of one group start in the same state of a deterministic world, and
  share it as long as they choose the same actions. A decision is judged by its
  return G against those of its n siblings, the other episodes in its state:

    A_i = G_i - (V + sum over siblings of G_j) / (1 + n)

  The critic counts as one sibling, so that a state that nobody shares has the
  Monte-Carlo advantage G - V. The baseline does not depend on the decision, so
  that the policy gradient stays unbiased. See "Group-in-Group Policy
  Optimization for LLM Agent Training", Feng et al., 2025
  (https://arxiv.org/abs/2505.10978), section 4.2, and for the leave-one-out
  mean Kool et al., 2019, "Buy 4 REINFORCE Samples, Get a Baseline for Free!".

  Args:
    returns: `[T, N]`, of each step to the end of its episode.
    values: `[T, N]`, of the states that were acted in.
    actions: `[T, N]` int.
    groups: `[N]` int.
    mask: `[T, N]` bool, valid steps.
  """
  chex.assert_equal_shape([returns, values, actions, mask])
  mask = jnp.asarray(mask, bool)
  returns = jnp.where(mask, returns, 0)
  others = (groups[:, None] == groups[None, :]) & ~jnp.eye(
    len(groups), dtype=bool
  )

  def step(shared, inputs):
    action, valid, value, total = inputs
    siblings = (shared & valid[None, :]).astype(total.dtype)
    baseline = (value + siblings @ total) / (1 + siblings.sum(axis=1))
    shared = shared & (action[:, None] == action[None, :])
    return shared, jnp.where(valid, total - baseline, 0)

  _, advantages = jax.lax.scan(step, others, (actions, mask, values, returns))
  return advantages
