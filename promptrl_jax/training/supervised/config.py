"""Settings of supervised training."""

from __future__ import annotations

import dataclasses

import optax

from promptrl_jax.training import optim


@dataclasses.dataclass(frozen=True)
class SupervisedConfig:
  """Settings of the training.

  Attributes:
    steps: optimizer steps.
    rows: packed rows per step.
    row_length: tokens per row.
    lr: peak learning rate of Adam, for embeddings and norms.
    muon_lr: peak learning rate of Muon, for matrices.
    warmup: steps of linear warm-up; then linear decay to 0.
    weight_decay: decoupled weight decay.
    prompt_weight: loss weight of prompt tokens; that of completions is 1. An
      encoder-decoder does not predict its prompts, so that theirs is 0.
    max_grad_norm: bound on the global gradient norm.
  """

  steps: int
  rows: int
  row_length: int
  lr: float
  muon_lr: float
  warmup: int
  weight_decay: float
  prompt_weight: float
  max_grad_norm: float

  def make_optimizer(self) -> optax.GradientTransformation:
    """Returns Muon for matrices and AdamW for the rest."""
    config = optim.OptimizerConfig(
      lr=self.lr,
      muon_lr=self.muon_lr,
      warmup=self.warmup,
      decay='linear',
      weight_decay=self.weight_decay,
      max_grad_norm=self.max_grad_norm,
      clip='global',
    )
    return optim.make_optimizer(config, self.steps)
