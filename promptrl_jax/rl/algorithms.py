"""Policy losses by name, so that a config can choose one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import jax

from promptrl_jax.rl import policy_losses

Metrics = dict[str, jax.Array]


class PolicyLossFn(Protocol):
  """Sums token losses. Advantages and old log-probabilities are constants.

  Args:
    logps: `[N, C]` log-probabilities of N sequences of C tokens under the
      policy that is trained.
    old_logps: `[N, C]`, under the policy that acted.
    advantages: `[N, C]`, already normalised if they are to be; those of whole
      sequences through `token_rewards.to_tokens`.
    mask: `[N, C]` bool, valid tokens.
    weights: `[N, C]` what each token weighs: those of
      `aggregation.aggregation_weights`, times importance weights if there are
      any. None weighs each by 1.
    ref_logps: `[N, C]`, under the reference; only 'mispo' reads them.

  Returns:
    Scalar loss sum, to be divided by the denominator of the aggregation, and
    sums over valid tokens, to be divided by their number: `clip_fraction`
    counts tokens whose ratio was clipped, `approx_kl` sums k3, an estimate of
    KL(old || new) that is never negative, `ratio` sums the ratios that were
    compared with the clip.
  """

  def __call__(
    self,
    logps: jax.Array,
    old_logps: jax.Array,
    advantages: jax.Array,
    mask: jax.Array,
    weights: jax.Array | None = None,
    ref_logps: jax.Array | None = None,
  ) -> tuple[jax.Array, Metrics]: ...


POLICY_LOSSES: dict[str, Callable[..., tuple[jax.Array, Metrics]]] = {
  'ppo': policy_losses.ppo_loss,
  'grpo': policy_losses.ppo_loss,
  'dapo': policy_losses.dapo_loss,
  'gspo': policy_losses.gspo_loss,
  'cispo': policy_losses.cispo_loss,
  'mispo': policy_losses.mispo_loss,
  'reinforce': policy_losses.reinforce_loss,
}


def make_policy_loss_fn(name: str, **options: Any) -> PolicyLossFn:
  """Returns the policy loss of a name, with its options set.

  Args:
    name: a key of `POLICY_LOSSES`.
    **options: keyword-only arguments of that loss: `clip_low=0.1`, say.
  """
  if name not in POLICY_LOSSES:
    raise ValueError(
      f'policy loss {name!r}: expected one of {", ".join(POLICY_LOSSES)}'
    )
  loss_fn = POLICY_LOSSES[name]
  known = getattr(loss_fn, '__kwdefaults__', None) or {}
  if unknown := sorted(options.keys() - known.keys()):
    raise ValueError(
      f'policy loss {name!r} has no option {", ".join(unknown)}: expected '
      f'{", ".join(known) or "none"}'
    )

  def policy_loss_fn(
    logps, old_logps, advantages, mask, weights=None, ref_logps=None
  ):
    return loss_fn(
      logps, old_logps, advantages, mask, weights, ref_logps, **options
    )

  return policy_loss_fn
