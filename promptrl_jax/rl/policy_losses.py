"""Policy losses as token terms, and their registry.

  TokenBatch ─► term(tokens, *, options) ─► TokenTerm ─► losses.policy_loss

An algorithm of policy optimisation differs from others in three places: how
advantages are computed (`groups`, `completions`), what is done with the
importance ratio (the terms of this file), and how tokens are averaged
(`aggregation`). The KL divergence from a reference policy is a separate term of
the loss: see `kl.token_kl`.

To add a policy loss, write a function like those below, and register it at the
end of this file or in another one.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, Protocol

import chex
import jax
import jax.numpy as jnp

from promptrl_jax.rl.losses import (
  Metrics,
  TokenBatch,
  TokenTerm,
  bounded_exp,
  clipped_objective,
  policy_loss,
)
from promptrl_jax.rl.masked import keep, masked_mean


def ppo(
  tokens: TokenBatch,
  *,
  clip_low: float = 0.2,
  clip_high: float = 0.2,
  dual_clip: float | None = None,
) -> TokenTerm:
  """Clips the ratio of each token: see `losses.clipped_objective`.

    o_t = min(ratio_t A_t, clip(ratio_t, 1 - low, 1 + high) A_t)

  See "Proximal Policy Optimization Algorithms", Schulman et al., 2017
  (https://arxiv.org/abs/1707.06347), eq. 7.

  GRPO (https://arxiv.org/abs/2402.03300, eq. 3) uses the same loss, with the
  advantages of `groups.group_advantages`.
  """
  ratio = bounded_exp(tokens.log_ratio)
  objective, clipped = clipped_objective(
    ratio, tokens.advantages, clip_low, clip_high, dual_clip
  )
  return TokenTerm(objective, clipped, ratio)


def dapo(
  tokens: TokenBatch, *, clip_low: float = 0.2, clip_high: float = 0.28
) -> TokenTerm:
  """Clips the ratio of each token at a larger distance above 1 than below.

    o_t as for `ppo`, with low < high

  See "DAPO", Yu et al., 2025 (https://arxiv.org/abs/2503.14476), eq. 10: the
  larger upper bound lets the probability of rare tokens grow. The paper
  combines it with `filters.informative_groups`, the aggregation 'token_mean'
  and no KL term.
  """
  return ppo(tokens, clip_low=clip_low, clip_high=clip_high)


def gspo(
  tokens: TokenBatch, *, clip_low: float = 3e-4, clip_high: float = 4e-4
) -> TokenTerm:
  """Clips one ratio per sequence, the geometric mean of its token ratios.

    s_i = exp(1/|o_i| sum_t (logp_it - old_logp_it))
    o_i = min(s_i A_i, clip(s_i, 1 - low, 1 + high) A_i)

  See "Group Sequence Policy Optimization", Zheng et al., 2025
  (https://arxiv.org/abs/2507.18071), eq. 5 and 7, where tokens are averaged by
  'sequence_mean'. The mean over tokens makes s_i vary little, hence the narrow
  clip. Advantages are expected to be equal within a sequence.
  """
  mean = masked_mean(tokens.log_ratio, tokens.mask, axis=-1, keepdims=True)
  ratio = jnp.broadcast_to(bounded_exp(mean), tokens.mask.shape)
  objective, clipped = clipped_objective(
    ratio, tokens.advantages, clip_low, clip_high
  )
  return TokenTerm(objective, clipped, ratio)


def cispo(
  tokens: TokenBatch, *, clip_low: float = 1.0, clip_high: float = 4.0
) -> TokenTerm:
  """Clips the weight of each token's gradient, and drops no gradient.

    o_t = stop_gradient(clip(ratio_t, 1 - low, 1 + high)) A_t logp_t

  See "MiniMax-M1", 2025 (https://arxiv.org/abs/2506.13585), eq. 4 and 5, which
  sets no lower bound (`clip_low=1`) and leaves the upper one to be tuned; 1 +
  high = 5 is of the size that "The Art of Scaling Reinforcement Learning
  Compute for LLMs", 2025 (https://arxiv.org/abs/2510.13786), found good.
  """
  ratio = jax.lax.stop_gradient(bounded_exp(tokens.log_ratio))
  weight = jnp.clip(ratio, 1 - clip_low, 1 + clip_high)
  objective = weight * tokens.advantages * tokens.logps
  return TokenTerm(objective, weight != ratio, ratio)


def reinforce(tokens: TokenBatch) -> TokenTerm:
  """Multiplies log-probabilities by advantages; only reports the ratio.

    o_t = A_t logp_t

  See "Simple Statistical Gradient-Following Algorithms for Connectionist
  Reinforcement Learning", Williams, 1992
  (https://doi.org/10.1007/BF00992696), theorem 1. The baseline is part of the
  advantages: none, the mean of batch or group (`groups.group_advantages`), the
  mean of the others in the group (`groups.leave_one_out`), a value function
  (`completions.completion_gae`), or the batch
  (`completions.reinforce_pp_advantages`). On-policy only: one update per batch.
  """
  objective = tokens.advantages * tokens.logps
  clipped = jnp.zeros(objective.shape, bool)
  return TokenTerm(objective, clipped, bounded_exp(tokens.log_ratio))


def trajectory_scale(
  logps: jax.Array,
  ref_logps: jax.Array,
  mask: jax.Array,
  band_low: float = 0.994,
  band_high: float = 1.002,
) -> jax.Array:
  """Returns a weight below 1 for sequences outside a band around the reference.

    rho_i = exp(1/|o_i| sum_t (logp_it - ref_logp_it))
    scale = min(1, rho_i / low, high / rho_i)

  The scale is a constant: no gradient flows through it. If it were
  differentiated, the sign of the loss would pull a sequence outside of the band
  further out or back in, whatever its reward. Source: the trainer of
  ReinforceClaw ("MIS-PO"), which does differentiate it.

  Args:
    logps, ref_logps, mask: `[..., C]`, under policy and reference.
    band_low, band_high: smallest and largest rho of weight 1.

  Returns:
    `[...]` scales in (0, 1]; 1 for a sequence without a valid token.
  """
  if not 0 < band_low <= 1 <= band_high:
    raise ValueError(
      f'band [{band_low}, {band_high}]: expected 0 < low <= 1 <= high, so that '
      'a policy equal to its reference has weight 1'
    )
  chex.assert_equal_shape([logps, ref_logps, mask])
  log_ratio = keep(logps - ref_logps, mask)
  rho = bounded_exp(masked_mean(log_ratio, mask, axis=-1))
  scale = jnp.minimum(1.0, jnp.minimum(rho / band_low, band_high / rho))
  return jax.lax.stop_gradient(scale)


def mispo(
  tokens: TokenBatch,
  *,
  clip_low: float = 0.5,
  clip_high: float = 1.0,
  band_low: float = 0.994,
  band_high: float = 1.002,
) -> TokenTerm:
  """Clips tokens widely, and scales sequences by `trajectory_scale`.

    o_t = scale_i min(ratio_t A_t, clip(ratio_t, 1 - low, 1 + high) A_t)

  Source: the trainer of ReinforceClaw ("MIS-PO"), with the band a constant. It
  is meant for many updates on answers that were rated once: sequences far from
  the reference count less. Averaged by 'sequence_mean'; the KL term that goes
  with it is `coef * token_kl(..., kind='k3')`. Its other form, REINFORCE with
  the divergence in the advantages, is `reinforce` with `kl.penalize`.

  Adds the metric `trajectory_scale`.

  Raises:
    ValueError: the batch has no log-probabilities under a reference policy.
  """
  if tokens.ref_logps is None:
    raise ValueError(
      "policy loss 'mispo' without ref_logps: pass the log-probabilities of "
      'the tokens under the reference'
    )
  scale = trajectory_scale(
    tokens.logps, tokens.ref_logps, tokens.mask, band_low, band_high
  )
  scale = jnp.broadcast_to(scale[..., None], tokens.mask.shape)
  term = ppo(tokens, clip_low=clip_low, clip_high=clip_high)
  return term._replace(
    objective=scale * term.objective, metrics={'trajectory_scale': scale}
  )


class PolicyLossFn(Protocol):
  """`losses.policy_loss` of one term: see there for arguments and results."""

  def __call__(
    self,
    logps: jax.Array,
    old_logps: jax.Array,
    advantages: jax.Array,
    mask: jax.Array | None = None,
    weights: jax.Array | None = None,
    ref_logps: jax.Array | None = None,
  ) -> tuple[jax.Array, Metrics]: ...


POLICY_LOSSES: dict[str, Callable[..., TokenTerm]] = {}


def register_policy_loss(name: str, term: Callable[..., TokenTerm]) -> None:
  """Makes a term available to `make_policy_loss_fn`, and so to configs.

  A term is `(tokens, *, option=default, ...) -> TokenTerm`, like `ppo`.

  Raises:
    ValueError: the name is taken, or the term has another signature.
  """
  if name in POLICY_LOSSES:
    raise ValueError(
      f'policy loss {name!r} is registered already: choose another name'
    )
  parameters = list(inspect.signature(term).parameters.values())
  takes_tokens = (
    bool(parameters)
    and parameters[0].kind is parameters[0].POSITIONAL_OR_KEYWORD
  )
  has_defaults = all(
    option.kind is option.KEYWORD_ONLY and option.default is not option.empty
    for option in parameters[1:]
  )
  if not (takes_tokens and has_defaults):
    raise ValueError(
      f'policy loss {name!r} has the signature {inspect.signature(term)}: '
      'expected (tokens, *, option=default, ...), one TokenBatch and '
      'keyword-only options with defaults'
    )
  POLICY_LOSSES[name] = term


def make_policy_loss_fn(name: str, **options: Any) -> PolicyLossFn:
  """Returns a policy loss of `POLICY_LOSSES`, with its options set.

  Raises:
    ValueError: the name or one of the options is unknown.
  """
  if name not in POLICY_LOSSES:
    hint = ''
    if name == 'grpo':
      hint = "; GRPO is the loss 'ppo' with advantages of the kind 'grpo'"
    raise ValueError(
      f'policy loss {name!r}: expected one of {", ".join(POLICY_LOSSES)}{hint}'
    )
  term = POLICY_LOSSES[name]
  known = list(inspect.signature(term).parameters)[1:]
  if unknown := sorted(options.keys() - set(known)):
    raise ValueError(
      f'policy loss {name!r} has no option {", ".join(unknown)}: expected '
      f'{", ".join(known) or "none"}'
    )
  return functools.partial(policy_loss, functools.partial(term, **options))


for _term in (ppo, dapo, gspo, cispo, mispo, reinforce):
  register_policy_loss(_term.__name__, _term)
