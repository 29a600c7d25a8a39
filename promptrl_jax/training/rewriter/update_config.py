"""Settings of the update of a language model."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from promptrl_jax.rl import aggregation, importance, kl, policy_losses

IMPORTANCE = ('none', *importance.LEVELS)


@dataclasses.dataclass(frozen=True)
class LMUpdateConfig:
  """Which loss, over which pieces.

  Attributes:
    loss: key of `rl.policy_losses.POLICY_LOSSES`.
    loss_options: its keyword arguments: `clip_low`, say.
    aggregation: how tokens are averaged: one of `rl.aggregation.AGGREGATIONS`.
    constant_length: tokens, for the aggregation `constant`.
    kl_estimator: of the divergence from the reference as a term of the loss:
      one of `rl.kl.KINDS`.
    kl_cap: largest divergence of a token, in nats; None: there is none.
    kl_min_prob: tokens no more probable than this to the policy are left out of
      that term; None: all count.
    entropy_coef: weight of the entropy bonus.
    value_coef: weight of the value loss, if there is a value head.
    value_clip: see `rl.losses.value_loss`.
    importance: `token` or `sequence` weighs losses by how much more probable
      the completion is to the policy than it was to the sampler; `none` only
      reports it.
    importance_cap: largest such weight.
    epochs: passes over a batch.
    minibatches: optimizer steps per pass.
    micro_batches: pieces of a minibatch that are in memory one at a time.
    compute_dtype: of the model's kernels in forward and backward passes; the
      parameters that the optimizer changes are float32.
  """

  loss: str = 'ppo'
  loss_options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  aggregation: str = 'token_mean'
  constant_length: int | None = None
  kl_estimator: str = 'k3'
  kl_cap: float | None = None
  kl_min_prob: float | None = None
  entropy_coef: float = 0.0
  value_coef: float = 0.5
  value_clip: float | None = None
  importance: str = 'none'
  importance_cap: float = 2.0
  epochs: int = 1
  minibatches: int = 1
  micro_batches: int = 1
  compute_dtype: str = 'float32'

  def __post_init__(self):
    policy_losses.make_policy_loss_fn(self.loss, **self.loss_options)
    for field, known in (
      ('aggregation', aggregation.AGGREGATIONS),
      ('kl_estimator', kl.KINDS),
      ('importance', IMPORTANCE),
      ('compute_dtype', ('float32', 'bfloat16')),
    ):
      if getattr(self, field) not in known:
        raise ValueError(
          f'{field}={getattr(self, field)!r}: expected one of '
          f'{", ".join(known)}'
        )
    for field in ('epochs', 'minibatches', 'micro_batches'):
      if getattr(self, field) < 1:
        raise ValueError(f'{field}={getattr(self, field)}: expected at least 1')

  @property
  def is_one_step(self) -> bool:
    """Whether a batch is used for a single optimizer step.

    The log-probs before it are then those that it computes anyhow.
    """
    return self.epochs * self.minibatches == 1

  @property
  def pieces(self) -> int:
    """Into how many pieces the rows of a batch are cut."""
    return self.minibatches * self.micro_batches
