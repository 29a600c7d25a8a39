"""Settings of the training of a sentence encoder."""

from __future__ import annotations

import dataclasses

import optax

from promptrl_jax.training import optim


@dataclasses.dataclass(frozen=True)
class SharesConfig:
  """How often a pair is of each kind, relative to the others.

  The kinds are described in `pairs.py`.
  """

  requests: float = 3.0
  answers: float = 1.5
  styles: float = 2.0
  minicode: float = 1.5
  programs: float = 1.0
  minicode2: float = 1.0
  views: float = 2.0

  def __post_init__(self):
    shares = dataclasses.asdict(self)
    if min(shares.values()) < 0 or not sum(shares.values()):
      raise ValueError(
        f'shares={shares}: expected numbers from 0 on, one of them above 0'
      )


@dataclasses.dataclass(frozen=True)
class EncoderTrainConfig:
  """Settings of the training.

  Attributes:
    steps: optimizer steps.
    pairs: per step.
    focus: topics, styles and families of one step; few make hard negatives.
    features: most rows of the table for a text; longer texts are cut.
    temperature: of the contrastive loss.
    lr: peak learning rate of Adam.
    warmup: steps of linear warm-up; then linear decay to 0.
    shares: of the kinds of pairs.
  """

  steps: int = 600
  pairs: int = 128
  focus: int = 6
  features: int = 512
  temperature: float = 0.1
  lr: float = 1e-2
  warmup: int = 20
  shares: SharesConfig = SharesConfig()

  def __post_init__(self):
    for name in ('steps', 'focus', 'features'):
      if getattr(self, name) < 1:
        raise ValueError(f'{name}={getattr(self, name)}: expected at least 1')
    if self.pairs < 2:
      raise ValueError(
        f'pairs={self.pairs}: expected at least 2, the negatives of each other'
      )
    if self.temperature <= 0:
      raise ValueError(
        f'temperature={self.temperature}: expected a number above 0'
      )

  def make_optimizer(self) -> optax.GradientTransformation:
    """Returns Adam."""
    config = optim.OptimizerConfig(
      lr=self.lr, warmup=self.warmup, decay='linear', max_grad_norm=None
    )
    return optim.make_optimizer(config, self.steps)
