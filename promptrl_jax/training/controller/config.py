"""Settings of the controller: its network, its episodes and its PPO update."""

from __future__ import annotations

import dataclasses

import optax

from promptrl_jax.training import optim


@dataclasses.dataclass(frozen=True)
class ControllerConfig:
  """Settings of the training.

  Attributes:
    iterations: updates.
    episodes: episodes per iteration.
    budgets: the budget of an episode is drawn from these, so that one policy
      learns to spend many calls and few.
    bootstrap_truncated: whether the value of the last observation stands in for
      what a cut-off episode would still have earned. False where the budget is
      part of the observation: then running out of it is an end like any other.
    trunk: widths of the layers that actor and critic share.
    head: widths of the layers of each head.
  """

  iterations: int
  episodes: int
  budgets: tuple[int, ...]
  bootstrap_truncated: bool
  trunk: tuple[int, ...]
  head: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class PPOConfig:
  """Settings of the update.

  Attributes:
    lr: Adam's learning rate.
    anneal_updates: updates over which the rate falls linearly to 0; None keeps
      it constant.
    adam_epsilon: Adam's epsilon.
    max_grad_norm: bound on the global gradient norm; None leaves it free.
    gamma: discount.
    gae_lambda: 1 gives Monte-Carlo returns minus values.
    clip: how far a probability ratio is followed away from 1.
    value_clip: how far a value may move in one update; None leaves it free.
    value_coef: weight of the squared value error.
    entropy_coef: weight of the entropy bonus.
    normalize: 'rollout' normalises advantages over the whole rollout, 'none'
      leaves them as they are.
    normalize_ddof: 0 for the population deviation, 1 for the sample's.
    epochs: passes over the rollout.
    minibatches: optimizer steps per pass.
    micro_batches: pieces of a minibatch whose gradients are added up; changes
      memory, not the result.
  """

  lr: float = 3e-4
  anneal_updates: int | None = None
  adam_epsilon: float = 1e-5
  max_grad_norm: float | None = 0.5
  gamma: float = 0.99
  gae_lambda: float = 0.95
  clip: float = 0.2
  value_clip: float | None = None
  value_coef: float = 0.5
  entropy_coef: float = 0.01
  normalize: str = 'rollout'
  normalize_ddof: int = 0
  epochs: int = 4
  minibatches: int = 4
  micro_batches: int = 1

  def __post_init__(self):
    if self.normalize not in ('rollout', 'none'):
      raise ValueError(
        f"normalize must be 'rollout' or 'none', got {self.normalize!r}"
      )
    for name in ('epochs', 'minibatches', 'micro_batches'):
      if getattr(self, name) < 1:
        raise ValueError(
          f'{name} must be at least 1, got {getattr(self, name)}'
        )
    for name in ('gamma', 'gae_lambda'):
      if not 0 <= getattr(self, name) <= 1:
        raise ValueError(
          f'{name} must lie in [0, 1], got {getattr(self, name)}'
        )

  def make_optimizer(self) -> optax.GradientTransformation:
    """Returns Adam after a clip of the global gradient norm."""
    config = optim.OptimizerConfig(
      lr=self.lr,
      decay='constant' if self.anneal_updates is None else 'linear',
      epsilon=self.adam_epsilon,
      max_grad_norm=self.max_grad_norm,
      clip='global',
    )
    updates = self.anneal_updates or 1
    return optim.make_optimizer(
      config, updates * self.epochs * self.minibatches
    )


# PROMIS: full-batch epochs on Monte-Carlo returns.
PROMIS = PPOConfig(
  adam_epsilon=1e-8, gae_lambda=1.0, normalize_ddof=1, minibatches=1
)
