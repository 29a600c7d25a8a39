"""What each token of a batch of completions is worth, by the name of a method.

rewards [N] ─┬─ grpo, dr_grpo, rloo, reinforce ── one number per completion
             ├─ pairs ── the best of each group against its worst
             ├─ reinforce_pp ── less the divergence to come, over the batch
             └─ gae ── per token, with values and the divergence as a reward
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from promptrl_jax.rl import (
  completions,
  groups,
  kl,
  masked,
  preference,
)

KINDS = ('grpo', 'dr_grpo', 'rloo', 'reinforce', 'reinforce_pp', 'gae', 'pairs')
# Those that compare completions of one prompt, so that equal rewards say
# nothing.
OF_GROUPS = ('grpo', 'dr_grpo', 'rloo', 'pairs')
# Where a divergence from the reference is charged.
CHARGES = ('auto', 'loss', 'reward', 'token')
DEVIATIONS = {'population': 'std', 'sample': 'sample_std'}
# Those that take it as a reward, unless they are told otherwise.
_PAY_KL = ('reinforce_pp', 'gae')


@dataclasses.dataclass(frozen=True)
class AdvantageConfig:
  """How advantages are made.

  Attributes:
    kind: `grpo`: over the deviation of the group; `dr_grpo`: not divided;
      `rloo`: against the others of the group; `reinforce`: against the mean of
      the batch; `reinforce_pp`: normalised over the batch; `gae`: with a value
      head; `pairs`: see `preference.pair_advantages`.
    gamma: `gae`: discount per token.
    lam: `gae`: weight of longer horizons.
    normalize: `gae`: over the tokens of the batch.
    beta: `pairs`: price of leaving the reference.
    charge_kl: where the divergence from the reference is paid: `loss`, as a
      term of it; `reward`, in reward, of tokens for `reinforce_pp` and `gae`,
      of whole completions for the others; `token`, off the advantage of each
      token, see `kl.penalize`; `auto`: `reward` for these two, `loss` for the
      others, and in the pair for `pairs`.
    deviation: `grpo`: that of the `population`, or of a `sample`, with n - 1.
    kl_estimator, kl_cap, kl_min_prob: of the divergence as a reward, see
      `kl.token_kl`; k1 alone has its gradient there, see `rl.kl`.
  """

  kind: str = 'grpo'
  gamma: float = 1.0
  lam: float = 0.95
  normalize: bool = True
  beta: float = 0.1
  charge_kl: str = 'auto'
  deviation: str = 'population'
  kl_estimator: str = 'k1'
  kl_cap: float | None = None
  kl_min_prob: float | None = None

  def __post_init__(self):
    for field, known in (
      ('kind', KINDS),
      ('charge_kl', CHARGES),
      ('deviation', DEVIATIONS),
      ('kl_estimator', kl.KINDS),
    ):
      if getattr(self, field) not in known:
        raise ValueError(
          f'advantage {field}={getattr(self, field)!r}: expected one of '
          f'{", ".join(known)}'
        )
    if self.kind == 'pairs' and self.charge_kl != 'auto':
      raise ValueError(
        f"charge_kl={self.charge_kl!r} with the advantage 'pairs': it is paid "
        'in the pair, expected auto'
      )
    if self.deviation != 'population' and self.kind != 'grpo':
      raise ValueError(
        f'deviation={self.deviation!r} with the advantage {self.kind!r}: only '
        'grpo divides by one'
      )
    measured = (self.kl_estimator, self.kl_cap, self.kl_min_prob)
    if measured != ('k1', None, None) and not self.pays_kl:
      raise ValueError(
        f'advantage kl_estimator, kl_cap, kl_min_prob={measured}, and the '
        'divergence is no reward: set charge_kl=reward, or those of the loss '
        '(learner)'
      )
    if self.charge_kl == 'token' and self.kl_estimator == 'exact':
      raise ValueError(
        "charge_kl='token' with kl_estimator='exact': the divergence at a "
        'place is the same for every token there, so that its price has no '
        'effect; take k1, or the loss'
      )
    if self.kind in _PAY_KL and self.charge_kl == 'token':
      raise ValueError(
        f"charge_kl='token' with the advantage {self.kind!r}: it counts what "
        'is still to be paid, expected reward, loss or auto'
      )

  @property
  def pays_kl(self) -> bool:
    """Whether advantages take the divergence as a reward."""
    is_auto = self.charge_kl == 'auto'
    return self.kind in _PAY_KL if is_auto else self.charge_kl != 'loss'

  @property
  def kl_in_loss(self) -> bool:
    """Whether it is a term of the loss."""
    return not self.pays_kl and self.kind != 'pairs'

  @property
  def uses_logps(self) -> bool:
    """Whether advantages read how probable completions are to the policy."""
    return self.pays_kl or self.kind == 'pairs'


@struct.dataclass
class Scored:
  """Completions with their rewards, and what models say about their tokens.

  Attributes:
    rewards: [N], finite where there is a token.
    groups: int [N] in [0, N), the prompt of each.
    mask: bool [N, C]; a completion without a token does not count.
    logps: [N, C], under the policy before the update.
    ref_logps: [N, C], under the reference; None if there is none.
    values: [N, C]; None without a value head.
    exact_kl: [N, C], from the reference; None unless the kind is exact.
  """

  rewards: Any
  groups: Any
  mask: Any
  logps: Any = None
  ref_logps: Any = None
  values: Any = None
  exact_kl: Any = None


@functools.partial(jax.jit, static_argnums=0)
def advantages(
  config: AdvantageConfig, batch: Scored, kl_coef: jax.Array | float
) -> tuple[jax.Array, jax.Array | None]:
  """Advantages [N, C], and the returns [N, C] that a value head learns.

  Args:
    config: the method.
    batch: N completions.
    kl_coef: price of the divergence in reward per nat, where it is a reward.

  Raises:
    ValueError: the method needs values or log-probs, and there are none.
  """
  mask, count = batch.mask, len(batch.rewards)
  valid = jnp.any(mask, axis=1)
  rewards = masked.keep(batch.rewards, valid)
  price = None
  if batch.ref_logps is not None and config.pays_kl:
    price = kl.token_kl(
      batch.logps, batch.ref_logps, mask, kind=config.kl_estimator,
      cap=config.kl_cap, min_prob=config.kl_min_prob, exact=batch.exact_kl,
    )  # fmt: skip
    if config.kind not in _PAY_KL and config.charge_kl == 'reward':
      rewards = rewards - kl_coef * jnp.sum(price, axis=1)
  if config.kind == 'gae':
    if batch.values is None:
      raise ValueError("advantage 'gae' needs a value head: value_head=True")
    paid = completions.token_rewards(rewards, mask, price, kl_coef)
    found = completions.completion_gae(
      paid, batch.values, mask, gamma=config.gamma, lam=config.lam
    )
    returns = masked.keep(found + batch.values, mask)
    return masked.normalize(found, mask) if config.normalize else found, returns
  if config.kind == 'reinforce_pp':
    return completions.reinforce_pp_advantages(
      rewards, mask, price, kl_coef
    ), None
  if config.kind == 'pairs':
    if batch.logps is None:
      raise ValueError("advantage 'pairs' needs log-probs of the policy")
    apart = batch.logps
    if batch.ref_logps is not None:
      apart = apart - batch.ref_logps
    found = preference.pair_advantages(
      jnp.sum(masked.keep(apart, mask), axis=1), rewards, batch.groups, count,
      valid, beta=config.beta,
    )  # fmt: skip
    return completions.to_tokens(found, mask), None
  if config.kind == 'rloo':
    found = groups.leave_one_out(rewards, batch.groups, count, valid)
  else:
    index = batch.groups
    if config.kind == 'reinforce':
      index = jnp.zeros_like(index)
    found = groups.group_advantages(
      rewards, index, count, valid,
      scale=DEVIATIONS[config.deviation] if config.kind == 'grpo' else 'none',
    )  # fmt: skip
  found = completions.to_tokens(found, mask)
  if price is not None and config.charge_kl == 'token':
    found = kl.penalize(found, price, mask, kl_coef)
  return found, None
