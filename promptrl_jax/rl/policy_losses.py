"""Policy losses of language models, with one signature.

  old_logps, advantages [N, C] ─┐
  logps [N, C] ─► ratio ─► token losses [N, C] ─► sum(weights * token losses)

`algorithms.PolicyLossFn` says what the arguments are, `algorithms` gives a loss
by its name. What a method is called differs in three places: how advantages are
made (`group_advantages`, `token_rewards`), what is done with the ratio (this
file), and how tokens are averaged (`aggregation`). A divergence from a
reference is a term of its own: see `kl.token_kl`.
"""

from __future__ import annotations

import chex
import jax
import jax.numpy as jnp

from promptrl_jax.rl.losses import bounded_exp, clipped_objective
from promptrl_jax.rl.masked import keep, masked_mean, masked_sum

Metrics = dict[str, jax.Array]


def _log_ratios(
  logps: jax.Array, old_logps: jax.Array, mask: jax.Array
) -> jax.Array:
  """Returns `[N, C]` log-ratios, float32 at least, 0 where invalid."""
  chex.assert_rank(logps, 2)
  chex.assert_equal_shape([logps, old_logps, mask])
  # Sums over a batch in bfloat16 would stop growing after some hundred tokens.
  logps = jnp.asarray(logps, jnp.result_type(logps, jnp.float32))
  return keep(logps - jax.lax.stop_gradient(old_logps), mask)


def _reduce(
  objective: jax.Array,
  clipped: jax.Array,
  ratio: jax.Array,
  log_ratio: jax.Array,
  mask: jax.Array,
  weights: jax.Array | None,
) -> tuple[jax.Array, Metrics]:
  """Sums a token objective as a loss, with the metrics that all losses share.

  Args:
    objective: `[N, C]`, to be maximised.
    clipped: `[N, C]` bool.
    ratio: `[N, C]`, what was compared with the clip.
    log_ratio: `[N, C]`, of tokens.
    mask: `[N, C]` bool.
    weights: `[N, C]` or None.
  """
  valid = jnp.asarray(mask, bool)
  if weights is None:
    weights = valid.astype(objective.dtype)
  chex.assert_equal_shape([objective, clipped, ratio, log_ratio, mask, weights])
  weights = keep(jax.lax.stop_gradient(weights), valid)
  metrics = {
    'clip_fraction': masked_sum(clipped.astype(ratio.dtype), valid),
    'approx_kl': masked_sum(jnp.expm1(log_ratio) - log_ratio, valid),
    'ratio': masked_sum(ratio, valid),
  }
  metrics = jax.tree.map(jax.lax.stop_gradient, metrics)
  return -masked_sum(keep(objective, valid), weights), metrics


def ppo_loss(
  logps: jax.Array,
  old_logps: jax.Array,
  advantages: jax.Array,
  mask: jax.Array,
  weights: jax.Array | None = None,
  ref_logps: jax.Array | None = None,
  *,
  clip_low: float = 0.2,
  clip_high: float = 0.2,
  dual_clip: float | None = None,
) -> tuple[jax.Array, Metrics]:
  """Clips the ratio of each token: see `losses.clipped_objective`.

    o_t = min(ratio_t A_t, clip(ratio_t, 1 - low, 1 + high) A_t)

  See "Proximal Policy Optimization Algorithms", Schulman et al., 2017
  (https://arxiv.org/abs/1707.06347), eq. 7.

  The loss of GRPO, too (https://arxiv.org/abs/2402.03300, eq. 3), whose
  advantages are those of `group_advantages`. Args as in `PolicyLossFn`.
  """
  del ref_logps
  log_ratio = _log_ratios(logps, old_logps, mask)
  ratio = bounded_exp(log_ratio)
  advantages = keep(jax.lax.stop_gradient(advantages), mask)
  objective, clipped = clipped_objective(
    ratio, advantages, clip_low, clip_high, dual_clip
  )
  return _reduce(objective, clipped, ratio, log_ratio, mask, weights)


def dapo_loss(
  logps: jax.Array,
  old_logps: jax.Array,
  advantages: jax.Array,
  mask: jax.Array,
  weights: jax.Array | None = None,
  ref_logps: jax.Array | None = None,
  *,
  clip_low: float = 0.2,
  clip_high: float = 0.28,
) -> tuple[jax.Array, Metrics]:
  """Clips the ratio of each token later upwards than downwards.

    o_t as for `ppo_loss`, with low < high

  See "DAPO", Yu et al., 2025 (https://arxiv.org/abs/2503.14476), eq. 10: rare
  tokens gain room to become likely. With it go `filters.informative_groups`,
  aggregation 'token_mean' and no divergence term. Args as in `PolicyLossFn`.
  """
  return ppo_loss(
    logps,
    old_logps,
    advantages,
    mask,
    weights,
    ref_logps,
    clip_low=clip_low,
    clip_high=clip_high,
  )


def gspo_loss(
  logps: jax.Array,
  old_logps: jax.Array,
  advantages: jax.Array,
  mask: jax.Array,
  weights: jax.Array | None = None,
  ref_logps: jax.Array | None = None,
  *,
  clip_low: float = 3e-4,
  clip_high: float = 4e-4,
) -> tuple[jax.Array, Metrics]:
  """Clips one ratio for each sequence, the geometric mean of its tokens'.

    s_i = exp(1/|o_i| sum_t (logp_it - old_logp_it))
    o_i = min(s_i A_i, clip(s_i, 1 - low, 1 + high) A_i)

  See "Group Sequence Policy Optimization", Zheng et al., 2025
  (https://arxiv.org/abs/2507.18071), eq. 5 and 7, where tokens are averaged by
  'sequence_mean'. The mean over tokens makes s_i vary little, hence the narrow
  clip. Args as in `PolicyLossFn`, with advantages equal within a sequence.
  """
  del ref_logps
  log_ratio = _log_ratios(logps, old_logps, mask)
  valid = jnp.asarray(mask, bool)
  ratio = bounded_exp(masked_mean(log_ratio, valid, axis=1, keepdims=True))
  ratio = jnp.broadcast_to(ratio, valid.shape)
  advantages = keep(jax.lax.stop_gradient(advantages), mask)
  objective, clipped = clipped_objective(ratio, advantages, clip_low, clip_high)
  return _reduce(objective, clipped, ratio, log_ratio, mask, weights)


def cispo_loss(
  logps: jax.Array,
  old_logps: jax.Array,
  advantages: jax.Array,
  mask: jax.Array,
  weights: jax.Array | None = None,
  ref_logps: jax.Array | None = None,
  *,
  clip_low: float = 1.0,
  clip_high: float = 4.0,
) -> tuple[jax.Array, Metrics]:
  """Clips the weight of each token's gradient, and drops no gradient.

    o_t = stop_gradient(clip(ratio_t, 1 - low, 1 + high)) A_t logp_t

  See "MiniMax-M1", 2025 (https://arxiv.org/abs/2506.13585), eq. 4 and 5, which
  sets no lower bound (`clip_low=1`) and leaves the upper one to be tuned; 1 +
  high = 5 is of the size that "The Art of Scaling Reinforcement Learning
  Compute for LLMs", 2025 (https://arxiv.org/abs/2510.13786), found good. Args
  as in `PolicyLossFn`.
  """
  del ref_logps
  log_ratio = _log_ratios(logps, old_logps, mask)
  ratio = jax.lax.stop_gradient(bounded_exp(log_ratio))
  bounded = jnp.clip(ratio, 1 - clip_low, 1 + clip_high)
  advantages = keep(jax.lax.stop_gradient(advantages), mask)
  objective = bounded * advantages * keep(logps, mask)
  return _reduce(objective, bounded != ratio, ratio, log_ratio, mask, weights)


def reinforce_loss(
  logps: jax.Array,
  old_logps: jax.Array,
  advantages: jax.Array,
  mask: jax.Array,
  weights: jax.Array | None = None,
  ref_logps: jax.Array | None = None,
) -> tuple[jax.Array, Metrics]:
  """Weighs log-probabilities by advantages; the ratio is reported, not used.

    o_t = A_t logp_t

  See "Simple Statistical Gradient-Following Algorithms for Connectionist
  Reinforcement Learning", Williams, 1992
  (https://doi.org/10.1007/BF00992696), theorem 1. The baseline is what the
  advantages are made with: none, the mean of batch or group
  (`group_advantages`), the others of the group (`leave_one_out`), a value
  (`completion_gae`), or the batch (`reinforce_pp_advantages`). On policy only:
  one update per batch. Args as in `PolicyLossFn`.
  """
  del ref_logps
  log_ratio = _log_ratios(logps, old_logps, mask)
  ratio = bounded_exp(log_ratio)
  advantages = keep(jax.lax.stop_gradient(advantages), mask)
  objective = advantages * keep(logps, mask)
  never = jnp.zeros(objective.shape, bool)
  return _reduce(objective, never, ratio, log_ratio, mask, weights)


def trajectory_scale(
  logps: jax.Array,
  ref_logps: jax.Array,
  mask: jax.Array,
  band_low: float = 0.994,
  band_high: float = 1.002,
) -> jax.Array:
  """Returns what a sequence weighs that has left a band around the reference.

    rho_i = exp(1/|o_i| sum_t (logp_it - ref_logp_it))
    scale = min(1, rho_i / low, high / rho_i)

  A constant: no gradient flows through it. Were it differentiated, a sequence
  outside of the band would be pulled further out or in by the sign of its loss,
  whatever its reward. Source: the trainer of ReinforceClaw ("MIS-PO"), which
  does differentiate it.

  Args:
    logps: `[N, C]`.
    ref_logps: `[N, C]`.
    mask: `[N, C]` bool.
    band_low: smallest rho of weight 1.
    band_high: largest.

  Returns:
    `[N]` scales in (0, 1]; 1 for a sequence without a valid token.
  """
  if not 0 < band_low <= 1 <= band_high:
    raise ValueError(
      f'band [{band_low}, {band_high}]: expected 0 < low <= 1 <= high, so that '
      'a policy equal to its reference has weight 1'
    )
  log_ratio = _log_ratios(logps, ref_logps, mask)
  rho = bounded_exp(masked_mean(log_ratio, jnp.asarray(mask, bool), axis=1))
  scale = jnp.minimum(1.0, jnp.minimum(rho / band_low, band_high / rho))
  return jax.lax.stop_gradient(scale)


def mispo_loss(
  logps: jax.Array,
  old_logps: jax.Array,
  advantages: jax.Array,
  mask: jax.Array,
  weights: jax.Array | None = None,
  ref_logps: jax.Array | None = None,
  *,
  clip_low: float = 0.5,
  clip_high: float = 1.0,
  band_low: float = 0.994,
  band_high: float = 1.002,
) -> tuple[jax.Array, Metrics]:
  """Clips tokens widely, and weighs sequences by `trajectory_scale`.

    o_t = scale_i min(ratio_t A_t, clip(ratio_t, 1 - low, 1 + high) A_t)

  Source: the trainer of ReinforceClaw ("MIS-PO"), with the band a constant. For
  answers that were rated once and are trained on for long: far from the
  reference they count less. Averaged by 'sequence_mean'; the divergence term
  that goes with it is `coef * token_kl(..., kind='k3')`. Its other form,
  REINFORCE with the divergence in the advantages, is `reinforce_loss` with
  `kl.penalize`. Args as in `PolicyLossFn`, `ref_logps` being required. Metrics
  have `trajectory_scale`, summed over valid tokens, too.
  """
  if ref_logps is None:
    raise ValueError(
      "policy loss 'mispo' without ref_logps: pass the log-probabilities of "
      'the tokens under the reference'
    )
  scale = trajectory_scale(logps, ref_logps, mask, band_low, band_high)
  scale = jnp.broadcast_to(scale[:, None], jnp.shape(mask))
  if weights is None:
    weights = jnp.ones_like(scale)
  chex.assert_equal_shape([weights, scale])
  loss, metrics = ppo_loss(
    logps,
    old_logps,
    advantages,
    mask,
    weights * scale,
    clip_low=clip_low,
    clip_high=clip_high,
  )
  valid = jnp.asarray(mask, bool)
  return loss, metrics | {'trajectory_scale': masked_sum(scale, valid)}
