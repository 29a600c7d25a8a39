"""Losses as sums over valid elements, and the masked categorical distribution.

A loss here is a *sum*, and so is each of its metrics; the caller divides by
`masked_sum(mask)` after adding up its micro-batches. The mask may hold weights:
1 / length for each token, say, weighs sequences equally. Advantages and
returns are constants; no gradient flows into them.
"""

from __future__ import annotations

import chex
import jax
import jax.numpy as jnp

from promptrl_jax.rl.masked import keep, masked_sum

# exp(20) is 5e8: beyond it a ratio says only that something is broken, and an
# infinity would turn gradients into NaN.
MAX_LOG_RATIO = 20.0


def bounded_exp(log_ratio: jax.Array) -> jax.Array:
  """Returns `exp(clip(log_ratio, -20, 20))`, a ratio that is always finite."""
  return jnp.exp(jnp.clip(log_ratio, -MAX_LOG_RATIO, MAX_LOG_RATIO))


def clipped_objective(
  ratio: jax.Array,
  advantages: jax.Array,
  clip_low: float = 0.2,
  clip_high: float = 0.2,
  dual_clip: float | None = None,
) -> tuple[jax.Array, jax.Array]:
  """Returns the clipped surrogate objective of each element.

    o_i = min(ratio_i A_i, clip(ratio_i, 1 - low, 1 + high) A_i)
    with a dual clip c, where A_i < 0: max(o_i, c A_i)

  See "Proximal Policy Optimization Algorithms", Schulman et al., 2017
  (https://arxiv.org/abs/1707.06347), eq. 7, and for the dual clip, which bounds
  what a large ratio can do where the advantage is negative, "Mastering Complex
  Control in MOBA Games", Ye et al., 2019
  (https://arxiv.org/abs/1912.09729).

  Args:
    ratio: `[...]`, probability now over probability at the time of acting.
    advantages: `[...]`.
    clip_low: how far below 1 the ratio is followed.
    clip_high: how far above 1.
    dual_clip: c, above 1; None leaves the dual clip out.

  Returns:
    `[...]` objective, to be maximised, and `[...]` bool: where a clip removed
    the gradient.
  """
  if dual_clip is not None and dual_clip <= 1:
    raise ValueError(
      f'dual_clip={dual_clip}: expected a number above 1, or None; a smaller '
      'one would cut the gradient of unchanged policies'
    )
  unclipped = ratio * advantages
  clipped = jnp.clip(ratio, 1 - clip_low, 1 + clip_high) * advantages
  cut = clipped < unclipped
  objective = jnp.minimum(unclipped, clipped)
  if dual_clip is not None:
    floor = jnp.where(advantages < 0, dual_clip * advantages, -jnp.inf)
    cut = cut | (objective < floor)
    objective = jnp.maximum(objective, floor)
  return objective, cut


def clipped_policy_loss(
  logps: jax.Array,
  old_logps: jax.Array,
  advantages: jax.Array,
  mask: jax.Array | None = None,
  clip_low: float = 0.2,
  clip_high: float = 0.2,
) -> tuple[jax.Array, dict[str, jax.Array]]:
  """Sums the clipped surrogate objective, with the sign of a loss.

    ratio = exp(logp - old_logp)
    loss  = -sum_i min(ratio_i A_i, clip(ratio_i, 1 - low, 1 + high) A_i)

  See `clipped_objective`; `policy_losses` has the forms for token arrays.

  Args:
    logps: `[...]` log-probabilities under the policy that is trained.
    old_logps: `[...]` log-probabilities under the policy that acted.
    advantages: `[...]`, already normalised if they are to be.
    mask: `[...]` booleans or weights; None counts everything.
    clip_low: how far below 1 the ratio is followed.
    clip_high: how far above 1.

  Returns:
    Scalar loss sum and metric sums: `clip_fraction` counts elements whose
    gradient the clip removed, `approx_kl` sums `(ratio - 1) - log_ratio`, an
    estimate of KL(old || new) that is never negative
    (http://joschu.net/blog/kl-approx.html, k3).
  """
  chex.assert_equal_shape([logps, old_logps, advantages])
  advantages = jax.lax.stop_gradient(advantages)
  old_logps = jax.lax.stop_gradient(old_logps)
  log_ratio = keep(logps - old_logps, mask)
  ratio = jnp.exp(log_ratio)
  objective, cut = clipped_objective(ratio, advantages, clip_low, clip_high)
  metrics = {
    'clip_fraction': masked_sum(cut.astype(ratio.dtype), mask),
    'approx_kl': masked_sum(ratio - 1 - log_ratio, mask),
  }
  return -masked_sum(objective, mask), metrics


def value_loss(
  values: jax.Array,
  old_values: jax.Array,
  returns: jax.Array,
  mask: jax.Array | None = None,
  clip: float | None = None,
) -> jax.Array:
  """Sums squared errors of the value, without a factor of one half.

    error_i = (V_i - R_i)^2
    with a clip: max(error_i, (V_old_i + clip(V_i - V_old_i, -c, c) - R_i)^2)

  The clipped form is that of the PPO authors' code (baselines, `ppo2`); see
  https://arxiv.org/abs/2006.05990. It is pessimistic, never
  smaller than the plain error.

  Args:
    values: `[...]` values that are trained.
    old_values: `[...]` values at the time of acting; only the clip reads them.
    returns: `[...]` targets.
    mask: `[...]` booleans or weights; None counts everything.
    clip: how far a value may move from its old value, in units of return.

  Returns:
    Scalar loss sum.
  """
  chex.assert_equal_shape([values, old_values, returns])
  returns = jax.lax.stop_gradient(returns)
  errors = jnp.square(keep(values - returns, mask))
  if clip is not None:
    old_values = jax.lax.stop_gradient(old_values)
    near = old_values + jnp.clip(values - old_values, -clip, clip)
    errors = jnp.maximum(errors, jnp.square(keep(near - returns, mask)))
  return masked_sum(errors, mask)


def mask_logits(
  logits: jax.Array, action_mask: jax.Array | None = None
) -> jax.Array:
  """Returns logits under which forbidden actions have probability 0.

  The value put in their place is finite, so that entropies and gradients stay
  finite, also in a padded row in which no action is allowed.

  Args:
    logits: `[..., A]`.
    action_mask: `[..., A]` bool, allowed actions; None allows all.
  """
  logits = jnp.asarray(logits)
  if action_mask is None:
    return logits
  chex.assert_equal_shape([logits, action_mask])
  lowest = jnp.finfo(logits.dtype).min / 2
  return jnp.where(jnp.asarray(action_mask, bool), logits, lowest)


def categorical_logps(
  logits: jax.Array,
  actions: jax.Array,
  action_mask: jax.Array | None = None,
) -> jax.Array:
  """Returns the log-probability of each action.

    logp_a = z_a - log sum_b exp(z_b), over allowed actions b

  Args:
    logits: `[..., A]`.
    actions: `[...]` int.
    action_mask: `[..., A]` bool, allowed actions; None allows all.

  Returns:
    `[...]` log-probabilities, in nats.
  """
  chex.assert_shape(actions, jnp.shape(logits)[:-1])
  logps = jax.nn.log_softmax(mask_logits(logits, action_mask))
  return jnp.take_along_axis(logps, jnp.asarray(actions)[..., None], -1)[..., 0]


def categorical_entropy(
  logits: jax.Array, action_mask: jax.Array | None = None
) -> jax.Array:
  """Returns `-sum_a p_a log p_a` over allowed actions.

  Args:
    logits: `[..., A]`.
    action_mask: `[..., A]` bool, allowed actions; None allows all.

  Returns:
    `[...]` entropies, in nats.
  """
  logps = jax.nn.log_softmax(mask_logits(logits, action_mask))
  return -jnp.sum(jnp.exp(logps) * logps, axis=-1)
