"""Advantages of each token of a batch of completions, by the name of a method.

rewards [N] ─┬─ grpo, dr_grpo, rloo, reinforce ── one number per completion
             ├─ pairs ── the best of each group against its worst
             ├─ reinforce_pp ── reward less the KL to come, over the batch
             └─ gae ── per token, with values and the KL as a reward
"""

from __future__ import annotations

import dataclasses
import functools

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
from promptrl_jax.settings import check_choices

KINDS = ('grpo', 'dr_grpo', 'rloo', 'reinforce', 'reinforce_pp', 'gae', 'pairs')
# Methods that compare completions of one prompt: equal rewards carry no signal.
OF_GROUPS = ('grpo', 'dr_grpo', 'rloo', 'pairs')
# Where the KL from the reference counts.
CHARGES = ('auto', 'loss', 'reward', 'token')
DEVIATIONS = {'population': 'std', 'sample': 'sample_std'}
# Methods in which `auto` makes the KL a reward of each token.
_PAY_KL = ('reinforce_pp', 'gae')


@dataclasses.dataclass(frozen=True)
class AdvantageConfig:
  """How advantages are computed.

  Attributes:
    kind: `grpo`: reward less the mean of the group, over its deviation;
      `dr_grpo`: the same without the division; `rloo`: less the mean of the
      others of the group; `reinforce`: less the mean of the batch;
      `reinforce_pp`: normalised over the tokens of the batch; `gae`: with a
      value head; `pairs`: see `preference.pair_advantages`.
    gamma: discount per token, for `gae`.
    lam: lambda of `gae`.
    normalize: whether `gae` is normalised over the tokens of the batch.
    beta: KL coefficient within `pairs`.
    charge_kl: where the KL from the reference counts: `loss`, as a term of the
      loss; `reward`, in the reward, of tokens for `reinforce_pp` and `gae`, of
      whole completions for the others; `token`, subtracted from the advantage
      of each token, see `kl.penalize`; `auto`: `reward` for these two, `loss`
      for the others, and within the pair for `pairs`.
    deviation: `population`, or `sample` with n - 1, for `grpo`.
    kl_estimator: estimator of the KL as a reward, see `kl.token_kl`; only k1
      has the gradient of the KL there, see `rl.kl`.
    kl_cap: largest KL of a token in the reward, in nats; None: no cap.
    kl_min_prob: tokens that the policy gives at most this probability have no
      KL in the reward; None: all have.
  """

  kind: str = 'grpo'
  gamma: float = 1.0
  lam: float = 1.0
  normalize: bool = True
  beta: float = 0.1
  charge_kl: str = 'auto'
  deviation: str = 'population'
  kl_estimator: str = 'k1'
  kl_cap: float | None = None
  kl_min_prob: float | None = None

  def __post_init__(self):
    check_choices(
      self,
      'advantage ',
      kind=KINDS,
      charge_kl=CHARGES,
      deviation=DEVIATIONS,
      kl_estimator=kl.KINDS,
    )
    self._check_charge()
    if self.deviation != 'population' and self.kind != 'grpo':
      raise ValueError(
        f'deviation={self.deviation!r} with the advantage {self.kind!r}: only '
        'grpo divides by one'
      )
    estimator = (self.kl_estimator, self.kl_cap, self.kl_min_prob)
    if estimator != ('k1', None, None) and not self.pays_kl:
      raise ValueError(
        f'advantage kl_estimator, kl_cap, kl_min_prob={estimator}, and the '
        'divergence is no reward: set charge_kl=reward, or those of the loss '
        '(update)'
      )

  def _check_charge(self) -> None:
    if self.charge_kl != 'auto' and self.kind == 'pairs':
      raise ValueError(
        f"charge_kl={self.charge_kl!r} with the advantage 'pairs': it is paid "
        'in the pair, expected auto'
      )
    if self.charge_kl == 'token' and self.kl_estimator == 'exact':
      raise ValueError(
        "charge_kl='token' with kl_estimator='exact': the divergence at a "
        'position is the same for every token there, so that subtracting it '
        'has no effect; take k1, or the loss'
      )
    if self.charge_kl == 'token' and self.kind in _PAY_KL:
      raise ValueError(
        f"charge_kl='token' with the advantage {self.kind!r}: it counts what "
        'is still to be paid, expected reward, loss or auto'
      )

  @property
  def pays_kl(self) -> bool:
    """Whether the KL counts as a reward."""
    is_auto = self.charge_kl == 'auto'
    return self.kind in _PAY_KL if is_auto else self.charge_kl != 'loss'

  @property
  def kl_in_loss(self) -> bool:
    """Whether the KL is a term of the loss."""
    return not self.pays_kl and self.kind != 'pairs'

  @property
  def uses_logps(self) -> bool:
    """Whether advantages need log-probs under the policy."""
    return self.pays_kl or self.kind == 'pairs'


@struct.dataclass
class Scored:
  """N completions with their rewards and what models say about their tokens.

  Attributes:
    rewards: [N], finite where there is a token.
    groups: int [N] in [0, N), number of the prompt of each completion.
    mask: bool [N, C], valid tokens; a completion without one does not count.
    logps: [N, C], log-probs under the policy before the update.
    ref_logps: [N, C], log-probs under the reference; None without one.
    values: [N, C]; None without a value head.
    exact_kl: [N, C], KL from the reference over the whole vocabulary; None
      unless `kl_estimator` is exact.
  """

  rewards: jax.Array
  groups: jax.Array
  mask: jax.Array
  logps: jax.Array | None = None
  ref_logps: jax.Array | None = None
  values: jax.Array | None = None
  exact_kl: jax.Array | None = None


Advantages = tuple[jax.Array, jax.Array | None]


@functools.partial(jax.jit, static_argnums=0)
def advantages(
  config: AdvantageConfig, batch: Scored, kl_coef: jax.Array | float
) -> Advantages:
  """Returns advantages [N, C], and the returns [N, C] that a value head learns.

  `kl_coef` counts in reward per nat, where the KL is a reward.

  Raises:
    ValueError: the method needs values or log-probs that the batch lacks.
  """
  rewards = masked.keep(batch.rewards, jnp.any(batch.mask, axis=1))
  divergence = _divergence(config, batch)
  if config.kind == 'gae':
    return _gae(config, batch, rewards, divergence, kl_coef)
  if config.kind == 'reinforce_pp':
    return completions.reinforce_pp_advantages(
      rewards, batch.mask, divergence, kl_coef
    ), None
  if divergence is not None and config.charge_kl == 'reward':
    rewards = rewards - kl_coef * jnp.sum(divergence, axis=1)
  compare = _pairs if config.kind == 'pairs' else _compared
  of_tokens = completions.to_tokens(compare(config, batch, rewards), batch.mask)
  if divergence is not None and config.charge_kl == 'token':
    of_tokens = kl.penalize(of_tokens, divergence, batch.mask, kl_coef)
  return of_tokens, None


def _divergence(config: AdvantageConfig, batch: Scored) -> jax.Array | None:
  """Returns the KL of each token [N, C]; None where it is no reward."""
  if batch.ref_logps is None or not config.pays_kl:
    return None
  if batch.logps is None:
    raise ValueError('the KL as a reward needs log-probs of the policy')
  return kl.token_kl(
    batch.logps,
    batch.ref_logps,
    batch.mask,
    kind=config.kl_estimator,
    cap=config.kl_cap,
    min_prob=config.kl_min_prob,
    exact=batch.exact_kl,
  )


def _gae(
  config: AdvantageConfig,
  batch: Scored,
  rewards: jax.Array,
  divergence: jax.Array | None,
  kl_coef: jax.Array | float,
) -> Advantages:
  if batch.values is None:
    raise ValueError("advantage 'gae' needs a value head: value_head=True")
  mask = batch.mask
  paid = completions.token_rewards(rewards, mask, divergence, kl_coef)
  estimates = completions.completion_gae(
    paid, batch.values, mask, gamma=config.gamma, lam=config.lam
  )
  returns = masked.keep(estimates + batch.values, mask)
  if config.normalize:
    estimates = masked.normalize(estimates, mask)
  return estimates, returns


def _pairs(
  config: AdvantageConfig, batch: Scored, rewards: jax.Array
) -> jax.Array:
  if batch.logps is None:
    raise ValueError("advantage 'pairs' needs log-probs of the policy")
  log_ratios = batch.logps
  if batch.ref_logps is not None:
    log_ratios = log_ratios - batch.ref_logps
  return preference.pair_advantages(
    jnp.sum(masked.keep(log_ratios, batch.mask), axis=1),
    rewards,
    batch.groups,
    len(batch.rewards),
    jnp.any(batch.mask, axis=1),
    beta=config.beta,
  )


def _compared(
  config: AdvantageConfig, batch: Scored, rewards: jax.Array
) -> jax.Array:
  """Compares each completion with its group, or with the batch."""
  index, count = batch.groups, len(batch.rewards)
  valid = jnp.any(batch.mask, axis=1)
  if config.kind == 'rloo':
    return groups.leave_one_out(rewards, index, count, valid)
  if config.kind == 'reinforce':
    index = jnp.zeros_like(index)
  scale = DEVIATIONS[config.deviation] if config.kind == 'grpo' else 'none'
  return groups.group_advantages(rewards, index, count, valid, scale=scale)
