"""The rewriter's learner: train state and jitted functions, built once.

  learner = build.make_learner(start, config, mesh, seed)
  state = learner.initial
  for step in range(config.iterations):
    rollout = learner.sample(state, prompts, seed=step)
    rewards = ...  # [N], one per completion: rollout.texts
    state, row = learner.update(state, rollout, rewards)
  learner.save(state, folder)

Where several processes share a run, each samples and rewards completions of its
own tasks; `update` exchanges arrays, and all of them update on one mesh.
"""

from __future__ import annotations

import dataclasses
import logging
import pathlib
import time
from collections.abc import Sequence
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from promptrl_jax.models import lora, peft, pretrained
from promptrl_jax.models.encoder_decoder_config import LanguageModelConfig
from promptrl_jax.models.tokenizer import Tokenizer
from promptrl_jax.parallel import exchange
from promptrl_jax.parallel import mesh as mesh_lib
from promptrl_jax.prompts.templates import Messages
from promptrl_jax.rl import kl_control
from promptrl_jax.sampling import prepare
from promptrl_jax.sampling.engine import Engine
from promptrl_jax.training.rewriter import (
  advantages,
  packing,
  policy,
  reference,
)
from promptrl_jax.training.rewriter import rollout as rollout_lib
from promptrl_jax.training.rewriter.advantages import Scored
from promptrl_jax.training.rewriter.config import TrainConfig
from promptrl_jax.training.rewriter.packing import Packed
from promptrl_jax.training.rewriter.policy import (
  Params,
  PolicyConfig,
)
from promptrl_jax.training.rewriter.rollout import Rollout
from promptrl_jax.training.rewriter.update import ScoreFn, UpdateBatch, UpdateFn
from promptrl_jax.training.state import Row, TrainState

_LOG = logging.getLogger(__name__)


@flax.struct.dataclass
class RewriterState:
  """All that a checkpoint needs.

  Attributes:
    train: trained parameters, optimizer state, step and base key.
    reference: arrays of the KL reference, see `reference.initial`.
    kl: the KL coefficient.
  """

  train: TrainState
  reference: Params
  kl: kl_control.KlControl

  @property
  def step(self) -> jax.Array:
    return self.train.step


@dataclasses.dataclass(frozen=True)
class RewriterLearner:
  """A language model that learns to rewrite; `build.make_learner` makes one.

  Attributes:
    name: name of the model at the start.
    model: shape of the model, as `save` writes it.
    tokenizer: tokenizer of the model.
    config: settings, with shapes that fit every batch (`config.shaped`).
    initial: state of step 0; copy it before an update, which donates it.
    policy: how the model's outputs are computed.
    fixed: parameters that are not trained.
    reference_policy: how the outputs of the reference are computed.
    reference_fixed: parameters of the reference that are not in the state.
    engine: samples rewrites.
    mesh: all devices, where the update runs.
    own_mesh: devices of this process, where the engine runs.
    score: jitted log-probs and values of the policy, see `update`.
    score_reference: the same of the reference.
    updates: jitted update of each of `config.phases`.
  """

  name: str
  model: LanguageModelConfig
  tokenizer: Tokenizer
  config: TrainConfig
  initial: RewriterState
  policy: PolicyConfig
  fixed: Params
  reference_policy: PolicyConfig
  reference_fixed: Params
  engine: Engine
  mesh: Mesh
  own_mesh: Mesh
  score: ScoreFn
  score_reference: ScoreFn
  updates: tuple[UpdateFn, ...]

  def params(self, state: RewriterState) -> Params:
    """Returns trained and fixed parameters merged into one tree."""
    return {**self.fixed, **state.train.params}

  def reference_params(self, state: RewriterState) -> Params | None:
    """Returns all parameters of the reference; None without one."""
    return reference.parameters(
      self.config.reference, state.reference, self.reference_fixed
    )

  def decode_params(self, state: RewriterState) -> prepare.DecodeParams:
    """Returns the policy's parameters as samplers take them."""
    params = exchange.own_copies(self.params(state), self.own_mesh)
    variables = policy.variables(self.policy, params)
    variables = policy.cast(variables, self.config.dtype)
    return prepared(variables, self.policy.model, self.own_mesh)

  def sample(
    self,
    state: RewriterState,
    prompts: Sequence[Messages],
    seed: int,
    names: Sequence[str] | None = None,
  ) -> Rollout:
    """Samples `config.rollout.group` completions of each prompt.

    Args:
      state: its parameters sample.
      prompts: B conversations.
      seed: seed of the batch.
      names: B names of the prompts, which seed the completions; None numbers
        them.

    Returns:
      N = B * G completions with their log-probs, group after group.
    """
    if names is None:
      names = [str(i) for i in range(len(prompts))]
    self.engine.replace_params(self.decode_params(state))
    return rollout_lib.sample(
      self.engine, self.tokenizer, prompts, names, self.config.rollout, seed
    )

  def update(
    self,
    state: RewriterState,
    rollout: Rollout,
    rewards: Sequence[float] | np.ndarray,
  ) -> tuple[RewriterState, Row]:
    """Makes one update; `state` is donated.

    A rollout from which nothing can be learned only advances the step.

    Args:
      state: the same on all processes.
      rollout: N completions of this process.
      rewards: `[N]`; a completion whose reward is not finite is left out.

    Returns:
      The state and metrics, the same on all processes.
    """
    started = time.perf_counter()
    phase = self.config.phase(int(state.step))
    config = self.config.phases[phase]
    rollout, rewards = rollout_lib.informative(
      rollout, rewards, config.rollout.drop_uniform
    )
    own_rows = packing.pack(
      rollout.prompts, rollout.completions, rollout.owners, config.packing
    )
    # All processes contribute equally many rows, or none of them updates.
    completions, num_rows = exchange.gather_rows(
      np.asarray([[len(rollout.completions), len(own_rows.tokens)]])
    ).max(axis=0)
    if not completions:
      return _skipped(state, phase)
    batch, sampler_logps = _gathered(config, rollout, rewards, completions)
    first = jax.process_index() * (len(batch.rewards) // jax.process_count())
    own_rows = packing.part_of(own_rows, num_rows, first)
    mesh_rows = exchange.global_rows(own_rows, self.mesh)
    all_rows = exchange.gather_rows(own_rows)
    batch, ref_hidden = self._scored(config, state, batch, all_rows, mesh_rows)
    update_batch = self._update_batch(
      config, state, batch, sampler_logps, own_rows, mesh_rows
    )
    scored = time.perf_counter()
    state, row = self._take_steps(
      phase, state, dataclasses.replace(update_batch, ref_hidden=ref_hidden)
    )
    return state, row | {
      'rollout/trained_reward': float(
        np.mean(batch.rewards[batch.mask.any(1)], dtype=np.float64)
      ),
      'train/packed': _packed_share(all_rows),
      'train/phase': float(phase),
      'time/score': scored - started,
      'time/update': time.perf_counter() - scored,
    }

  def _scored(
    self,
    config: TrainConfig,
    state: RewriterState,
    batch: Scored,
    rows: Packed,
    mesh_rows: Packed,
  ) -> tuple[Scored, jax.Array | None]:
    """Adds log-probs and values, under policy and reference, where needed.

    Args:
      config: says which are needed.
      state: the parameters.
      batch: N completions of all processes.
      rows: rows of all processes, on the host.
      mesh_rows: the same rows, split over devices.

    Returns:
      The batch, and the hidden states of the reference, which stay on the mesh;
      None unless they are needed.
    """
    gather = lambda x: packing.gather(
      rows, exchange.to_host(x), len(batch.rewards)
    )
    needs_policy = not config.loss.is_one_step or (
      config.value_head or config.advantage.uses_logps
    )
    fields, hidden = {}, None
    ref_params = self.reference_params(state)
    if ref_params is not None:
      outputs = self.score_reference(ref_params, mesh_rows)
      fields['ref_logps'], hidden = gather(outputs.logps), outputs.hidden
    if needs_policy:
      exact = (hidden, ref_params) if config.exact_kl_in_advantages else ()
      outputs = self.score(self.params(state), mesh_rows, *exact)
      fields['logps'] = gather(outputs.logps)
      if outputs.values is not None:
        fields['values'] = gather(outputs.values)
      if outputs.divergences is not None:
        fields['exact_kl'] = gather(outputs.divergences)
    return dataclasses.replace(batch, **fields), hidden

  def _update_batch(
    self,
    config: TrainConfig,
    state: RewriterState,
    batch: Scored,
    sampler_logps: np.ndarray,
    own_rows: Packed,
    mesh_rows: Packed,
  ) -> UpdateBatch:
    """Computes advantages and lays everything out in rows, on the mesh."""
    tokens, returns = advantages.advantages(
      config.advantage, batch, float(state.kl.coef)
    )

    def spread(values: Any) -> np.ndarray | None:
      return None if values is None else packing.spread(own_rows, values)

    fields = {
      'advantages': spread(tokens),
      'sampler_logps': spread(sampler_logps),
      'old_logps': None if config.loss.is_one_step else spread(batch.logps),
      'ref_logps': spread(batch.ref_logps),
      'returns': spread(returns),
      'old_values': spread(batch.values),
    }
    return UpdateBatch(mesh_rows, **exchange.global_rows(fields, self.mesh))

  def _take_steps(
    self, phase: int, state: RewriterState, batch: UpdateBatch
  ) -> tuple[RewriterState, Row]:
    """Runs the jitted update, then moves the reference and its coefficient."""
    config = self.config.phases[phase]
    ref_params = self.reference_params(state)
    if not config.exact_kl_in_loss:
      batch, ref_params = dataclasses.replace(batch, ref_hidden=None), None
    train, metrics = self.updates[phase](
      state.train,
      self.fixed,
      batch,
      state.kl.coef * config.advantage.kl_in_loss,
      ref_params,
    )
    step = int(train.step)
    state = RewriterState(
      train,
      reference.after_update(
        config.reference, state.reference, train.params, step
      ),
      reference.next_kl_control(
        config.reference, state.kl, metrics.get('train/kl', jnp.zeros(()))
      ),
    )
    row = {name: float(value) for name, value in metrics.items()}
    return state, row | {'train/kl_coef': float(state.kl.coef)}

  def save(self, state: RewriterState, folder: pathlib.Path) -> pathlib.Path:
    """Writes a state as a model folder `folder/model`; returns its path.

    Adapters are merged into the model, and also written to `folder/adapter` for
    whoever has the model that they started from.
    """
    params = exchange.own_copies(self.params(state), self.own_mesh)
    model = {'params': params['params']}
    if self.policy.lora is not None:
      adapters = params['adapters']
      model = lora.merge(self.policy.lora, model, adapters)
      peft.save(folder / 'adapter', self.policy.lora, adapters, self.name)
    pretrained.save_pretrained(
      folder / 'model', self.model, model, self.tokenizer, 'float32'
    )
    return folder / 'model'


def _skipped(state: RewriterState, phase: int) -> tuple[RewriterState, Row]:
  """Returns what an update without any completion to learn from returns."""
  _LOG.warning(
    'update %d learned nothing: rewards differ in none of its groups',
    int(state.step),
  )
  train = dataclasses.replace(state.train, step=state.step + 1)
  row = {'train/phase': float(phase), 'time/score': 0.0, 'time/update': 0.0}
  return dataclasses.replace(state, train=train), row


def prepared(
  variables: Params, model: LanguageModelConfig, mesh: Mesh
) -> prepare.DecodeParams:
  """Returns variables as samplers take them, split where the mesh splits."""
  rules = None
  if mesh_lib.splits_parameters(mesh):
    rules = pretrained.family(model.family).partition
  return prepare.prepare(variables, mesh, rules)


def _gathered(
  config: TrainConfig, rollout: Rollout, rewards: np.ndarray, largest: int
) -> tuple[Scored, np.ndarray]:
  """Gathers the completions of all processes.

  Groups stay within a process. N is that of a full batch, so that functions of
  the batch are compiled once.

  Args:
    config: size of a full batch.
    rollout: completions of this process.
    rewards: their rewards.
    largest: most completions of any process.

  Returns:
    N completions, and the sampler's log-probs `[N, C]`.
  """
  share = exchange.my_rows(config.rollout.prompts * config.rollout.group)
  count = max(share.stop - share.start, int(largest))
  padding = (0, count - len(rollout.completions))
  mask = np.zeros((count, config.packing.lane_size), bool)
  sampler_logps = np.zeros(mask.shape, np.float32)
  for number, logps in enumerate(rollout.sampler_logps):
    mask[number, : len(logps)] = True
    sampler_logps[number, : len(logps)] = logps
  groups = np.pad(np.asarray(rollout.owners, np.int32), padding)
  fields: dict[str, Any] = {
    'rewards': np.pad(rewards, padding),
    'groups': groups + jax.process_index() * count,
    'mask': mask,
  }
  return exchange.gather_rows((Scored(**fields), sampler_logps))


def _packed_share(rows: Packed) -> float:
  """Returns the share of positions that hold a token, in rows that hold any."""
  is_used = np.asarray(rows.mask).any((1, 2))
  return float(np.mean(rows.segments[is_used] > 0))
