"""Importance weights that correct the mismatch of sampler and trainer.

The same parameters give different probabilities in the two: kernels, dtypes and
batch shapes differ, or the sampler is some updates behind. Weighting by the
ratio of trainer to sampler corrects for it; truncating the ratio adds a small
bias and removes most of the variance.
"""

from __future__ import annotations

import chex
import jax
import jax.numpy as jnp

from promptrl_jax.rl.kl import token_kl
from promptrl_jax.rl.losses import bounded_exp
from promptrl_jax.rl.masked import keep, masked_mean, masked_sum

LEVELS = ('token', 'sequence')


def truncated_importance_weights(
  logps: jax.Array,
  sampler_logps: jax.Array,
  mask: jax.Array,
  *,
  level: str = 'token',
  cap: float = 2.0,
) -> tuple[jax.Array, dict[str, jax.Array]]:
  """Returns importance weights, and metrics of the mismatch.

    token     w_t = min(exp(logp_t - sampler_logp_t), cap)
    sequence  w_i = min(exp(sum_t (logp_t - sampler_logp_t)), cap)

  See "Truncated Importance Sampling", Ionides, 2008
  (https://doi.org/10.1198/106186008X320456), and for language models
  "Your Efficient RL Framework Secretly Brings You Off-Policy RL Training", Yao
  et al., 2025. The sequence level is unbiased below the cap, the token level
  has less variance. Multiply the weights of a policy loss by them, not its
  denominator; the ratio inside the loss stays that of trainer to trainer.

  Args:
    logps: `[N, C]`, under the trainer, with the parameters that sampled or
      those at the start of the update.
    sampler_logps: `[N, C]`, as the sampler reported them.

  Returns:
    `[N, C]` weights, 0 where invalid, through which no gradient flows, and
    scalars over the batch. From the ratios r before the cap: `ratio_mean` (1 in
    expectation where the sampler covers the trainer), `ratio_max`,
    `truncated_share`, and `effective_sample_share` = (sum r)^2 / (n sum r^2),
    which is 1 if all ratios are equal. From tokens: `kl`, the mean of
    exp(d) - 1 - d with d = logp - sampler_logp, an estimate of
    KL(sampler || trainer). All are 0 for a batch without a valid token.
  """
  if level not in LEVELS:
    raise ValueError(f'level={level!r}: expected one of {", ".join(LEVELS)}')
  if not cap > 0:
    raise ValueError(f'cap={cap}: expected a positive weight')
  chex.assert_rank(mask, 2)
  chex.assert_equal_shape([logps, sampler_logps, mask])
  valid = jnp.asarray(mask, bool)
  log_ratio = keep(jax.lax.stop_gradient(logps - sampler_logps), valid)
  counted, level_log_ratio = valid, log_ratio
  if level == 'sequence':
    counted = jnp.any(valid, axis=1, keepdims=True)
    level_log_ratio = jnp.sum(log_ratio, axis=1, keepdims=True)
  ratio = bounded_exp(level_log_ratio)
  total = masked_sum(ratio, counted)
  squares = masked_sum(jnp.square(ratio), counted)
  count = jnp.sum(counted)
  metrics = {
    'ratio_mean': total / jnp.maximum(count, 1),
    'ratio_max': jnp.max(keep(ratio, counted), initial=0.0),
    'truncated_share': masked_mean((ratio > cap).astype(ratio.dtype), counted),
    # In this order: the square of the total would overflow first.
    'effective_sample_share': total
    / jnp.maximum(count, 1)
    * (total / jnp.where(squares > 0, squares, 1)),
    'kl': masked_mean(token_kl(sampler_logps, logps, valid), valid),
  }
  weights = jnp.broadcast_to(jnp.minimum(ratio, cap), valid.shape)
  return keep(weights, valid), metrics
