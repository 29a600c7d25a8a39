"""Settings of a rewriter's training and of its update."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from promptrl_jax.models.lora import LoraConfig
from promptrl_jax.rl import aggregation, importance, kl, policy_losses
from promptrl_jax.settings import check_choices, derived
from promptrl_jax.training.optim import OptimizerConfig
from promptrl_jax.training.rewriter.advantages import OF_GROUPS, AdvantageConfig
from promptrl_jax.training.rewriter.packing import PackingConfig
from promptrl_jax.training.rewriter.reference import ReferenceConfig
from promptrl_jax.training.rewriter.rollout import RolloutConfig

PARAMETERS = ('full', 'lora')
IMPORTANCE = ('none', *importance.LEVELS)


@dataclasses.dataclass(frozen=True)
class LossConfig:
  """The loss of the update, and how a batch is cut into steps.

  Attributes:
    kind: a key of `rl.policy_losses.POLICY_LOSSES`.
    options: keyword arguments of that loss, e.g. `clip_low`.
    aggregation: how token losses are averaged, one of
      `rl.aggregation.AGGREGATIONS`.
    constant_length: tokens per completion for the aggregation `constant`.
    kl_estimator: estimator of the KL divergence from the reference as a term of
      the loss, one of `rl.kl.KINDS`.
    kl_cap: largest divergence of a token, in nats; None: no cap.
    kl_min_prob: tokens that the policy gives at most this probability are left
      out of the KL term; None keeps all.
    entropy_coef: weight of the entropy bonus.
    value_coef: weight of the value loss; without a value head it is not used.
    value_clip: see `rl.losses.value_loss`.
    importance: `token` or `sequence` weighs losses by the ratio of the
      policy's probability before the update to the sampler's; `none` only
      reports the mismatch.
    importance_cap: largest such weight.
    epochs: passes over a batch.
    minibatches: optimizer steps per pass.
    micro_batches: pieces of a minibatch that are in memory one at a time; set
      by `TrainConfig.shaped`.
    compute_dtype: dtype of the model's kernels in forward and backward passes;
      the parameters that the optimizer changes are float32.
  """

  kind: str = 'ppo'
  options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
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
  micro_batches: int = derived(1)
  compute_dtype: str = 'float32'

  def __post_init__(self):
    policy_losses.make_policy_loss_fn(self.kind, **self.options)
    check_choices(
      self,
      aggregation=aggregation.AGGREGATIONS,
      kl_estimator=kl.KINDS,
      importance=IMPORTANCE,
      compute_dtype=('float32', 'bfloat16'),
    )
    for field in ('epochs', 'minibatches', 'micro_batches'):
      if getattr(self, field) < 1:
        raise ValueError(f'{field}={getattr(self, field)}: expected at least 1')

  @property
  def is_one_step(self) -> bool:
    """Whether a batch is used for a single optimizer step.

    The log-probs before the update are then those that the step computes.
    """
    return self.epochs * self.minibatches == 1

  @property
  def pieces(self) -> int:
    """Number of micro-batches of a whole batch."""
    return self.minibatches * self.micro_batches


@dataclasses.dataclass(frozen=True)
class TrainConfig:
  """Settings of a rewriter's training.

  Attributes:
    iterations: updates of the run.
    packing: shape of a packed row.
    parameters: what is trained, `full` or `lora`.
    value_trunk: whether the value loss changes the model below its head. In a
      run of a few dozen updates that spoils the policy before the values are
      of use.
    rows_per_piece: packed rows of a micro-batch, on each part of the mesh that
      rows are split over.
    logits_chunk: tokens of a row whose logits are in memory at a time; None:
      all.
    remat: whether the update computes layers again instead of keeping their
      activations.
    unroll: whether the update runs layer after layer instead of a loop over
      layers. That is a little faster, since fewer activations are copied, but
      compiles longer. An encoder-decoder has no such choice.
    overlap: whether the next batch is sampled while the rewards of this one are
      computed. The policy that samples is then one update behind;
      `loss.importance` corrects for it.
    dtype: dtype of the sampler's parameters.
    rollout: what one iteration samples.
    advantage: how advantages are computed.
    loss: the loss and its steps.
    reference: the KL reference and its coefficient.
    optimizer: optimizer and learning rate.
    lora: the adapters, for `parameters='lora'`; their family is that of the
      model.
    switches: pairs of an update number and the settings that hold from it on,
      in order. They may differ in `advantage`, `loss` and in which groups are
      kept; `algorithms.make_config` sets them.
  """

  iterations: int = 40
  packing: PackingConfig = PackingConfig()
  parameters: str = 'full'
  value_trunk: bool = False
  rows_per_piece: int = 4
  logits_chunk: int | None = None
  remat: bool = False
  unroll: bool = False
  overlap: bool = False
  dtype: str = 'float32'
  rollout: RolloutConfig = RolloutConfig()
  advantage: AdvantageConfig = AdvantageConfig()
  loss: LossConfig = LossConfig()
  reference: ReferenceConfig = ReferenceConfig()
  optimizer: OptimizerConfig = OptimizerConfig(
    warmup=5, decay='linear', b2=0.99
  )
  lora: LoraConfig = LoraConfig(family='')
  switches: tuple[tuple[int, TrainConfig], ...] = derived(())

  def __post_init__(self):
    for field in ('rows_per_piece', 'logits_chunk'):
      value = getattr(self, field)
      if value is not None and value < 1:
        raise ValueError(f'{field}={value}: expected 1 or more')
    check_choices(self, parameters=PARAMETERS)

  def check(self) -> None:
    """Checks settings beside each other; an algorithm may change them before.

    Raises:
      ValueError: two settings make no sense together.
    """
    for phase in self.phases:
      phase._check_phase()
    self._check_switches()

  def _check_phase(self) -> None:
    self._check_advantage()
    self._check_group()
    if self.overlap and self.loss.importance == 'none':
      raise ValueError(
        'overlap=True with importance=none: the sampler is an update behind, '
        'choose token or sequence'
      )
    if self.reference.kind == 'adapter_off' and self.parameters != 'lora':
      raise ValueError(
        "reference 'adapter_off' needs parameters='lora': without adapters the "
        'model itself changes; choose frozen, copy or ema'
      )

  def _check_advantage(self) -> None:
    kind = self.advantage.kind
    if self.exact_kl_in_loss and not self.advantage.kl_in_loss:
      raise ValueError(
        f"loss.kl_estimator='exact' with the advantage {kind!r} and "
        f'charge_kl={self.advantage.charge_kl!r}, which leave no divergence in '
        'the loss: set charge_kl=loss (not for pairs), or k3'
      )
    if kind == 'pairs' and (
      self.loss.kind != 'reinforce' or not self.loss.is_one_step
    ):
      raise ValueError(
        f'the advantage pairs with the loss {self.loss.kind!r}, '
        f'epochs={self.loss.epochs} and minibatches='
        f'{self.loss.minibatches}: its gradient is right for reinforce and '
        'one step per batch'
      )

  def _check_group(self) -> None:
    if self.rollout.group > 1:
      return
    if self.advantage.kind in OF_GROUPS:
      raise ValueError(
        f'a group of {self.rollout.group} with the advantage '
        f'{self.advantage.kind!r}: it compares the completions of a prompt, '
        'so take 2 or more, or reinforce, reinforce_pp or gae'
      )
    if self.rollout.drop_uniform:
      raise ValueError(
        'a group of 1 with drop_uniform=True: the rewards of such a group are '
        'all equal, so that every one would be left out; take 2 or more, or '
        'drop_uniform=False'
      )

  @property
  def value_head(self) -> bool:
    """Whether the model has a value head."""
    return self.advantage.kind == 'gae'

  @property
  def exact_kl_in_advantages(self) -> bool:
    """Whether advantages need the KL over the whole vocabulary."""
    exact = self.advantage.kl_estimator == 'exact'
    return exact and self.reference.kind != 'none'

  @property
  def exact_kl_in_loss(self) -> bool:
    """Whether the loss needs the KL over the whole vocabulary."""
    exact = self.loss.kl_estimator == 'exact'
    return exact and self.reference.kind != 'none'

  @property
  def needs_exact_kl(self) -> bool:
    """Whether any phase needs the KL over the whole vocabulary."""
    return any(
      phase.exact_kl_in_advantages or phase.exact_kl_in_loss
      for phase in self.phases
    )

  def _check_switches(self) -> None:
    starts = [start for start, _ in self.switches]
    if starts != sorted(set(starts)) or any(start < 1 for start in starts):
      raise ValueError(
        f'switches at the updates {starts}: expected ascending numbers from 1'
      )
    for start, later in self.switches:
      rollout = dataclasses.replace(
        later.rollout,
        drop_uniform=self.rollout.drop_uniform,
        resample_rounds=self.rollout.resample_rounds,
      )
      theirs = {**vars(later), 'rollout': rollout}
      for name, mine in vars(self).items():
        if name in ('advantage', 'loss', 'switches') or mine == theirs[name]:
          continue
        raise ValueError(
          f'the switch at update {start} changes {name} from {mine} to '
          f'{theirs[name]}: one optimizer state serves the whole run, so that '
          'only advantage, loss and which groups are kept may change'
        )
      if later.value_head != self.value_head:
        raise ValueError(
          f'the switch at update {start} changes the advantage from '
          f'{self.advantage.kind!r} to {later.advantage.kind!r}: only gae has '
          'a value head, and the parameters are those of the whole run'
        )

  @property
  def phases(self) -> tuple[TrainConfig, ...]:
    """These settings and those of `switches`, in order."""
    return (self, *(later for _, later in self.switches))

  def phase(self, step: int) -> int:
    """Returns the index in `phases` that holds at update `step`, from 0."""
    return sum(start <= step for start, _ in self.switches)

  @property
  def optimizer_steps(self) -> int:
    """Optimizer steps of the whole run."""
    losses = [phase.loss for phase in self.phases]
    steps = [loss.epochs * loss.minibatches for loss in losses]
    return sum(steps[self.phase(step)] for step in range(self.iterations))

  def shaped(self, shards: int, processes: int = 1) -> TrainConfig:
    """Returns a copy whose static shapes fit every batch of the run.

    The number of rows is that of the worst case, in which every completion
    fills a lane and no two prompts fit into one row. Micro-batches of rows that
    stay empty are skipped.

    Args:
      shards: parts of the mesh that rows are split over; the same number on
        each process.
      processes: processes that share the prompts; each packs its own rows.

    Raises:
      ValueError: the processes cannot share the prompts equally, or settings
        make no sense beside each other.
    """
    self.check()
    if self.rollout.prompts % processes:
      raise ValueError(
        f'rollout.prompts={self.rollout.prompts} cannot be shared equally by '
        f'{processes} processes: choose a multiple of {processes}'
      )
    per_row = min(self.packing.lanes, self.packing.sequences)
    worst = self.rollout.prompts * -(-self.rollout.group // per_row)
    piece = self.rows_per_piece * shards
    # Every phase has the same number of rows.
    parts = [phase.loss.minibatches for phase in self.phases]
    unit = piece * math.lcm(*parts)
    rows = -(-worst // unit) * unit

    def cut(phase: TrainConfig, **more: Any) -> TrainConfig:
      count = rows // (piece * phase.loss.minibatches)
      return dataclasses.replace(
        phase,
        loss=dataclasses.replace(phase.loss, micro_batches=count),
        packing=dataclasses.replace(
          self.packing, row_multiple=rows // processes
        ),
        **more,
      )

    later = tuple((start, cut(phase)) for start, phase in self.switches)
    # `_check_switches` compares the packing of all phases.
    return cut(self, switches=later)
