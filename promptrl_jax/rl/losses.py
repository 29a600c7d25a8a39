"""Losses as sums over valid elements, and the masked categorical distribution.

  logps, old_logps ─► log-ratios ─┐
  advantages ─────────────────────┴► term ─► objective ─► -sum(w * objective)

A loss is a *sum*, and so is each of its metrics; the caller divides by the
denominator after adding up its micro-batches. `policy_loss` is what all policy
losses share; `policy_losses` holds the terms in which they differ. Advantages
and returns are constants: no gradient flows into them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp

from promptrl_jax.rl.masked import keep, masked_sum

Metrics = dict[str, jax.Array]

# exp(20) is 5e8: a larger ratio only says that something is broken, and an
# infinite one would make gradients NaN.
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
    with a dual clip c > 1, where A_i < 0: max(o_i, c A_i)

  See "Proximal Policy Optimization Algorithms", Schulman et al., 2017
  (https://arxiv.org/abs/1707.06347), eq. 7, and for the dual clip, which bounds
  the objective at large ratios of negative advantages, "Mastering Complex
  Control in MOBA Games", Ye et al., 2019
  (https://arxiv.org/abs/1912.09729).

  Returns:
    `[...]` objective, to be maximised, and `[...]` bool: True where a clip
    removed the gradient.
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


class TokenBatch(NamedTuple):
  """The arrays that a token term reads, prepared by `policy_loss`.

  A token is one action of a policy: a token of a completion, for which arrays
  are `[N, C]`, or an action of a controller, for which they may have any shape.
  All values are 0 where the mask is False.

  Attributes:
    logps: `[..., C]` log-probabilities under the trained policy, float32 at
      least; gradients flow into these and into `log_ratio` only.
    log_ratio: `[..., C]`, `logps` minus those of the policy that acted.
    advantages: `[..., C]`.
    mask: `[..., C]` bool, valid tokens.
    ref_logps: `[..., C]`, under the reference policy; None without one.
  """

  logps: jax.Array
  log_ratio: jax.Array
  advantages: jax.Array
  mask: jax.Array
  ref_logps: jax.Array | None = None


class TokenTerm(NamedTuple):
  """The result of a token term, `[..., C]` arrays.

  Attributes:
    objective: to be maximised.
    clipped: bool, where a clip took effect.
    ratio: the importance ratio that the term uses or reports.
    metrics: further arrays by name, to be summed over valid tokens.
  """

  objective: jax.Array
  clipped: jax.Array
  ratio: jax.Array
  metrics: Metrics | None = None


def policy_loss(
  term: Callable[[TokenBatch], TokenTerm],
  logps: jax.Array,
  old_logps: jax.Array,
  advantages: jax.Array,
  mask: jax.Array | None = None,
  weights: jax.Array | None = None,
  ref_logps: jax.Array | None = None,
) -> tuple[jax.Array, Metrics]:
  """Sums a token term as a loss.

    loss = -sum_i weight_i objective_i

  Everything but `logps` is a constant. Terms whose formula speaks of whole
  sequences ('gspo', 'mispo') take the last axis as the tokens of one sequence;
  for the others arrays may have any shape.

  Args:
    logps: `[..., C]` log-probabilities under the policy that is trained.
    advantages: `[..., C]`, already normalised if they are to be; see
      `completions.to_tokens` for advantages of whole sequences.
    mask: `[..., C]` booleans or weights, valid tokens; None counts everything.
    weights: `[..., C]` weight of each token in the loss: those of
      `aggregation.aggregation_weights`, times importance weights if there are
      any. None takes the mask.

  Returns:
    Scalar loss sum, to be divided by the denominator of the aggregation, and
    sums over the mask, to be divided by its own sum: `clip_fraction` counts
    clipped tokens, `approx_kl` sums exp(log_ratio) - 1 - log_ratio, an estimate
    of KL(old || new) that is never negative
    (http://joschu.net/blog/kl-approx.html, k3), `ratio` sums ratios. A term may
    add further metrics.
  """
  # Sums over a batch in bfloat16 would stop growing after some hundred tokens.
  logps = jnp.asarray(logps, jnp.result_type(logps, jnp.float32))
  if mask is None:
    mask = jnp.ones(logps.shape, bool)
  weights = mask if weights is None else weights
  constants = [old_logps, advantages, mask, weights]
  constants += [] if ref_logps is None else [ref_logps]
  chex.assert_equal_shape([logps, *constants])
  old_logps, advantages, weights, ref_logps = jax.lax.stop_gradient(
    (old_logps, advantages, weights, ref_logps)
  )
  valid = jnp.asarray(mask) != 0
  log_ratio = keep(logps - old_logps, valid)
  outputs = term(
    TokenBatch(
      keep(logps, valid),
      log_ratio,
      keep(advantages, valid),
      valid,
      None if ref_logps is None else keep(ref_logps, valid),
    )
  )
  objective, clipped, ratio, own_metrics = outputs
  metrics = {
    'clip_fraction': clipped.astype(ratio.dtype),
    'approx_kl': jnp.expm1(log_ratio) - log_ratio,
    'ratio': ratio,
    **(own_metrics or {}),
  }
  chex.assert_equal_shape([logps, objective, *metrics.values()])
  metrics = {
    name: jax.lax.stop_gradient(masked_sum(values, mask))
    for name, values in metrics.items()
  }
  weights = keep(weights, valid)
  return -masked_sum(keep(objective, valid), weights), metrics


def value_loss(
  values: jax.Array,
  old_values: jax.Array,
  returns: jax.Array,
  mask: jax.Array | None = None,
  clip: float | None = None,
) -> jax.Array:
  """Sums squared errors of values, without a factor of one half.

    error_i = (V_i - R_i)^2
    with a clip: max(error_i, (V_old_i + clip(V_i - V_old_i, -c, c) - R_i)^2)

  The clipped form is that of the PPO authors' code (baselines, `ppo2`); see
  https://arxiv.org/abs/2006.05990. It is never smaller than the plain error.
  Arrays are `[...]`; the mask holds booleans or weights, None counts
  everything, and `clip` is in units of return.
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
  """Returns logits `[..., A]` under which forbidden actions have probability 0.

  Their logits are replaced by a finite value, so that entropies and gradients
  stay finite, also in a padded row without an allowed action. A mask of None
  allows all.
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
  """Returns the log-probability of each action, in nats.

    logp_a = z_a - log sum_b exp(z_b), over allowed actions b

  Args:
    logits: `[..., A]`.
    actions: `[...]` int.
    action_mask: `[..., A]` bool, allowed actions; None allows all.
  """
  chex.assert_shape(actions, jnp.shape(logits)[:-1])
  logps = jax.nn.log_softmax(mask_logits(logits, action_mask))
  return jnp.take_along_axis(logps, jnp.asarray(actions)[..., None], -1)[..., 0]


def categorical_entropy(
  logits: jax.Array, action_mask: jax.Array | None = None
) -> jax.Array:
  """Returns `-sum_a p_a log p_a` over allowed actions, `[...]` nats."""
  logps = jax.nn.log_softmax(mask_logits(logits, action_mask))
  return -jnp.sum(jnp.exp(logps) * logps, axis=-1)
