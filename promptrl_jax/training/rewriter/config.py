"""Settings of the training of a rewriter."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import optax

from promptrl_jax.training.rewriter.advantages import OF_GROUPS, AdvantageConfig
from promptrl_jax.training.rewriter.packing import PackingConfig
from promptrl_jax.training.rewriter.reference import ReferenceConfig
from promptrl_jax.training.rewriter.rollout import RolloutConfig
from promptrl_jax.training.rewriter.update_config import LMUpdateConfig


@dataclasses.dataclass(frozen=True)
class OptimizerConfig:
  """AdamW after a clip of the norm, which a value head does not share.

  Attributes:
    lr: peak learning rate.
    warmup: optimizer steps of a lower rate, which rises by equal parts.
    decay: after them, `constant`, or `linear` to 0 at the end of the run.
    weight_decay: decoupled.
    b2: Adam's second decay.
    max_grad_norm: longer gradients are scaled down to it.
  """

  lr: float = 1e-4
  warmup: int = 0
  decay: str = 'constant'
  weight_decay: float = 0.0
  b2: float = 0.999
  max_grad_norm: float = 1.0

  def __post_init__(self):
    if self.decay not in ('constant', 'linear'):
      raise ValueError(
        f'decay={self.decay!r}: expected one of constant, linear'
      )

  def rate(self, steps: int) -> optax.Schedule:
    """The learning rate by update, of a run of so many."""
    rise, rest = max(1, self.warmup), max(1, steps - self.warmup)
    end = 0.0 if self.decay == 'linear' else self.lr
    # From a step above 0, so that the first update is one.
    first = self.lr / (self.warmup + 1)
    return optax.join_schedules(
      [
        optax.linear_schedule(first, self.lr, rise),
        optax.linear_schedule(self.lr, end, rest),
      ],
      [self.warmup],
    )

  def make(self, steps: int) -> optax.GradientTransformation:
    """The optimizer of a run of so many updates."""
    return optax.chain(
      _clip_by_collection(self.max_grad_norm),
      optax.adamw(self.rate(steps), b2=self.b2, weight_decay=self.weight_decay),
    )


def _clip_by_collection(most: float) -> optax.GradientTransformation:
  """Scales the gradient of each collection down to a norm of at most `most`.

  That of a new value head is far longer than that of the policy at first, and
  would leave next to nothing of it if they shared a norm.
  """

  def clip(updates: Any, params: Any) -> Any:
    del params
    norms = {name: optax.tree.norm(tree) for name, tree in updates.items()}
    scales = {k: most / jnp.maximum(norm, most) for k, norm in norms.items()}
    return {
      name: jax.tree.map(lambda x, name=name: x * scales[name], tree)
      for name, tree in updates.items()
    }

  return optax.stateless(clip)


@dataclasses.dataclass(frozen=True)
class RewriterConfig:
  """Settings of the whole.

  Attributes:
    iterations: updates of the run.
    train: `full` or `lora`.
    value_head: whether there is one, for the advantage `gae`.
    value_trunk: whether its loss changes the model below it. In a run of a few
      dozen updates that spoils the policy before the values are of use.
    rows_per_piece: packed rows of a micro-batch, on each part of the mesh that
      rows are split over.
    logits_chunk: places of a row that have logits at a time; None: all.
    remat: whether the update computes layers again instead of keeping them.
    overlap: whether the device samples the next batch while the pool runs the
      programs of this one. The policy that sampled is then one update behind;
      `update.importance` corrects for it.
    dtype: of the sampler's parameters.
    packing: of one row.
    rollout, advantage, update, reference, optimizer: the parts.
    switches: update number and settings that hold from it on, in order. They
      may differ in `advantage`, `update` and in which groups are kept.
  """

  iterations: int
  packing: PackingConfig
  train: str = 'full'
  value_head: bool = False
  value_trunk: bool = False
  rows_per_piece: int = 4
  logits_chunk: int | None = None
  remat: bool = False
  overlap: bool = False
  dtype: str = 'float32'
  rollout: RolloutConfig = RolloutConfig()
  advantage: AdvantageConfig = AdvantageConfig()
  update: LMUpdateConfig = LMUpdateConfig()
  reference: ReferenceConfig = ReferenceConfig()
  optimizer: OptimizerConfig = OptimizerConfig()
  switches: tuple[tuple[int, RewriterConfig], ...] = ()

  def __post_init__(self):
    self._check_switches()
    self._check_exact_kl()
    for field in ('rows_per_piece', 'logits_chunk'):
      value = getattr(self, field)
      if value is not None and value < 1:
        raise ValueError(f'{field}={value}: expected 1 or more')
    if (self.advantage.kind == 'gae') != self.value_head:
      raise ValueError(
        f'value_head={self.value_head} with the advantage '
        f'{self.advantage.kind!r}: gae needs a value head, the others have no '
        'use for one'
      )
    if self.advantage.kind == 'pairs' and (
      self.update.loss != 'reinforce' or not self.update.is_one_step
    ):
      raise ValueError(
        f'the advantage pairs with the loss {self.update.loss!r}, '
        f'epochs={self.update.epochs} and minibatches='
        f'{self.update.minibatches}: its gradient is right for reinforce and '
        'one step per batch'
      )
    if self.overlap and self.update.importance == 'none':
      raise ValueError(
        'overlap=True with importance=none: the sampler is an update behind, '
        'choose token or sequence'
      )
    if self.rollout.group < 2 and self.advantage.kind in OF_GROUPS:
      raise ValueError(
        f'a group of {self.rollout.group} with the advantage '
        f'{self.advantage.kind!r}: it compares the completions of a prompt, '
        'so take 2 or more, or reinforce, reinforce_pp or gae'
      )
    if self.rollout.group < 2 and self.rollout.drop_uniform:
      raise ValueError(
        'a group of 1 with drop_uniform=True: the rewards of such a group are '
        'all equal, so that every one would be left out; take 2 or more, or '
        'drop_uniform=False'
      )

  @property
  def exact_kl_in_advantages(self) -> bool:
    """Whether they need the divergence over the whole vocabulary."""
    exact = self.advantage.kl_estimator == 'exact'
    return exact and self.reference.kind != 'none'

  @property
  def exact_kl_in_loss(self) -> bool:
    """Whether it needs the divergence over the whole vocabulary."""
    exact = self.update.kl_estimator == 'exact'
    return exact and self.reference.kind != 'none'

  @property
  def needs_exact_kl(self) -> bool:
    """Whether any of the phases does, for advantages or the loss."""
    return any(
      phase.exact_kl_in_advantages or phase.exact_kl_in_loss
      for phase in self.phases
    )

  def _check_exact_kl(self) -> None:
    if self.exact_kl_in_loss and not self.advantage.kl_in_loss:
      raise ValueError(
        f"learner.kl_estimator='exact' with the advantage "
        f'{self.advantage.kind!r} and charge_kl={self.advantage.charge_kl!r}, '
        'which leave no divergence in the loss: set charge_kl=loss (not for '
        'pairs), or k3'
      )

  def _check_switches(self) -> None:
    starts = [start for start, _ in self.switches]
    if starts != sorted(set(starts)) or any(start < 1 for start in starts):
      raise ValueError(
        f'switches at the updates {starts}: expected ascending numbers from 1'
      )
    for start, later in self.switches:
      kept = dataclasses.replace(
        later.rollout,
        drop_uniform=self.rollout.drop_uniform,
        resample_rounds=self.rollout.resample_rounds,
      )
      theirs = {**vars(later), 'rollout': kept}
      for name, mine in vars(self).items():
        if name in ('advantage', 'update', 'switches') or mine == theirs[name]:
          continue
        raise ValueError(
          f'the switch at update {start} changes {name} from {mine} to '
          f'{theirs[name]}: one optimizer state serves the whole run, so that '
          'only advantage, update and which groups are kept may change'
        )

  @property
  def phases(self) -> tuple[RewriterConfig, ...]:
    """These settings, and those that follow."""
    return (self, *(later for _, later in self.switches))

  def phase(self, step: int) -> int:
    """Which of `phases` holds for update number `step`, from 0."""
    return sum(start <= step for start, _ in self.switches)

  @property
  def optimizer_steps(self) -> int:
    """How many a run takes."""
    updates = [phase.update for phase in self.phases]
    steps = [update.epochs * update.minibatches for update in updates]
    return sum(steps[self.phase(step)] for step in range(self.iterations))

  def shaped(self, shards: int, processes: int = 1) -> RewriterConfig:
    """The same with shapes that hold any batch.

    Rows are as many as it takes if every completion fills a lane and no two
    prompts fit into one row; those that stay empty are skipped, a micro-batch
    at a time.

    Args:
      shards: parts of the mesh that rows are split over, as many on each
        process.
      processes: that share the prompts; each packs its own rows.

    Raises:
      ValueError: they cannot share the prompts equally.
    """
    if self.rollout.prompts % processes:
      raise ValueError(
        f'rollout.prompts={self.rollout.prompts} cannot be shared equally by '
        f'{processes} processes: choose a multiple of {processes}'
      )
    seats = min(self.packing.lanes, self.packing.sequences)
    worst = self.rollout.prompts * -(-self.rollout.group // seats)
    piece = self.rows_per_piece * shards
    # As many rows in every phase.
    parts = [phase.update.minibatches for phase in self.phases]
    unit = piece * math.lcm(*parts)
    rows = -(-worst // unit) * unit

    def cut(phase: RewriterConfig, **more: Any) -> RewriterConfig:
      count = rows // (piece * phase.update.minibatches)
      return dataclasses.replace(
        phase,
        update=dataclasses.replace(phase.update, micro_batches=count),
        packing=dataclasses.replace(
          self.packing, row_multiple=rows // processes
        ),
        **more,
      )

    later = tuple((start, cut(phase)) for start, phase in self.switches)
    # What switches are compared with has these rows as well.
    return cut(self, switches=later)
