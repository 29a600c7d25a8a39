"""A rewriter that learns: its state, and all that is compiled, made once.

`rewriter_training` samples and rewards with it, `rewriter_update` changes its
state.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from promptrl_jax.models import pretrained
from promptrl_jax.models.encoder_decoder_config import LanguageModelConfig
from promptrl_jax.models.heads import ValueHead
from promptrl_jax.models.tokenizer import Tokenizer
from promptrl_jax.parallel import exchange
from promptrl_jax.parallel import mesh as mesh_lib
from promptrl_jax.rl import kl_control
from promptrl_jax.sampling import prepare
from promptrl_jax.sampling.engine import Engine, make_engine
from promptrl_jax.sampling.methods import Sampling
from promptrl_jax.sampling.requests import (
  EngineConfig,
  prompt_lengths_up_to,
)
from promptrl_jax.training import (
  lm_policy,
  lm_update,
  reference,
)
from promptrl_jax.training import state as state_lib
from promptrl_jax.training.lm_policy import Params, PolicyConfig
from promptrl_jax.training.rewriter_config import RewriterConfig
from promptrl_jax.training.state import TrainState, initial_state

Row = dict[str, float]
UpdateFn = Callable[..., tuple[TrainState, dict[str, jax.Array]]]


@flax.struct.dataclass
class RewriterState:
  """All that a checkpoint needs.

  Attributes:
    learner: parameters that are trained, optimizer, step, base key.
    reference: see `reference.initial`.
    kl: the price of divergence.
  """

  learner: TrainState
  reference: Params
  kl: kl_control.KlControl

  @property
  def step(self) -> jax.Array:
    return self.learner.step


@dataclasses.dataclass(frozen=True)
class Rewriter:
  """What `make_rewriter` builds.

  Attributes:
    config: settings, `shaped`.
    policy: how the model is read.
    tokenizer: of the model.
    engine: samples rewrites.
    mesh: where the update runs: all devices.
    own_mesh: where the engine runs: the devices of this process.
    fixed: parameters that are not trained.
    initial: the state of step 0.
    compared: how the reference is read.
    compared_fixed: parameters of the reference that are not in the state.
    score, score_reference: see `lm_update.make_score_fn`.
    updates: of each phase, see `lm_update.make_update_fn`.
  """

  config: RewriterConfig
  policy: PolicyConfig
  tokenizer: Tokenizer
  engine: Engine
  mesh: Mesh
  own_mesh: Mesh
  fixed: Params
  initial: RewriterState
  compared: PolicyConfig
  compared_fixed: Params
  score: Callable[..., lm_policy.TokenOutputs]
  score_reference: Callable[..., lm_policy.TokenOutputs]
  updates: tuple[UpdateFn, ...]

  def params(self, state: RewriterState) -> Params:
    """All collections."""
    return {**self.fixed, **state.learner.params}

  def reference_params(self, state: RewriterState) -> Params | None:
    """All collections of the reference; None if there is none."""
    return reference.parameters(
      self.config.reference, state.reference, self.compared_fixed
    )

  def decode_params(self, state: RewriterState) -> prepare.DecodeParams:
    """The policy as samplers take it."""
    params = exchange.own_copies(self.params(state), self.own_mesh)
    tree = lm_policy.variables(self.policy, params)
    tree = lm_policy.cast(tree, self.config.dtype)
    return _prepared(tree, self.policy.model, self.own_mesh)


def make_rewriter(
  model: LanguageModelConfig,
  params: Params,
  tokenizer: Tokenizer,
  mesh: Mesh,
  config: RewriterConfig,
  seed: int,
  lora: Any = None,
  prompt_lengths: Sequence[int] | None = None,
  slots: int = 16,
  other: tuple[LanguageModelConfig, Params] | None = None,
) -> Rewriter:
  """Builds the jitted functions and the state of step 0.

  Args:
    model: its shape.
    params: `params` and, to train those, `adapters`.
    tokenizer: of the model.
    mesh: of the devices of this process. Rows are split over `data`, along
      which other processes follow, and `fsdp`; over `fsdp` and `tensor`
      parameters, optimizer and reference are, by the family's rules.
    config: settings.
    seed: of the value head and of minibatches.
    lora: config of the adapters.
    prompt_lengths, slots: of the sampler, see `EngineConfig`; without lengths,
      the usual ones up to `config.packing.prompt_size`.
    other: for the reference `model`, with the tokenizer of the policy.

  Raises:
    ValueError: what is to be trained is not there, a rewrite does not fit into
      the rows, or processes cannot share the prompts equally.
  """
  own_mesh, mesh = mesh, mesh_lib.over_processes(mesh)
  config = config.shaped(mesh_lib.num_row_shards(mesh), jax.process_count())
  if prompt_lengths is None:
    prompt_lengths = prompt_lengths_up_to(config.packing.prompt_size)
  _check(config, prompt_lengths)
  model = dataclasses.replace(
    model,
    eos_token_ids=tuple(
      dict.fromkeys((*model.eos_token_ids, *tokenizer.eos_ids))
    ),
    pad_token_id=tokenizer.pad_id,
  )
  policy = PolicyConfig(
    dataclasses.replace(model, remat=config.remat or model.remat),
    lora,
    config.rollout.temperature,
    config.logits_chunk,
    config.value_trunk,
    mesh,
  )
  if config.value_head:
    head = ValueHead().init(
      jax.random.key(seed), jnp.zeros((1, model.hidden_size))
    )
    params = {**params, 'value': head['params']}
  optimizer = config.optimizer.make(config.optimizer_steps)

  def build(trained: Params) -> RewriterState:
    masters = jax.tree.map(lambda x: x.astype(jnp.float32), trained)
    return RewriterState(
      initial_state(lambda _: masters, optimizer, jax.random.key(seed)),
      reference.initial(config.reference, masters),
      kl_control.initial(config.reference.kl_coef),
    )

  whole = NamedSharding(mesh, P())
  placed = lm_policy.placement(params, model.family, mesh)
  trained, fixed = lm_policy.split(exchange.place(params, placed), config.train)
  learner = state_lib.placement(trained, optimizer, whole)
  copied = jax.eval_shape(build, trained).reference
  where: Any = (learner, learner.params if copied else {}, whole)
  where = RewriterState(*where)
  state = jax.jit(build, out_shardings=where)(trained)
  compared, compared_fixed = policy, fixed
  if other is not None:
    check_reference(config, model, other[0])
    compared, compared_fixed = _other(policy, *other)
  reference.parameters(config.reference, state.reference, compared_fixed)
  engine = make_engine(
    model, Sampling(),
    _prepared(
      lm_policy.cast(lm_policy.variables(policy, params), config.dtype),
      model, own_mesh,
    ),
    own_mesh,
    EngineConfig(
      slots=slots,
      prompt_lengths=tuple(prompt_lengths),
      new_tokens=config.rollout.new_tokens,
    ),
  )  # fmt: skip
  exact = config.needs_exact_kl
  score = lm_update.make_score_fn(policy, config.update, compared)
  return Rewriter(
    config, policy, tokenizer, engine, mesh, own_mesh, fixed, state,
    compared, compared_fixed, score,
    # One that reads as the policy does is not compiled twice.
    score if compared is policy and not exact else lm_update.make_score_fn(
      compared, config.update, keep_hidden=exact
    ),
    tuple(
      lm_update.make_update_fn(
        policy, optimizer, phase.update, learner, compared
      )
      for phase in config.phases
    ),
  )  # fmt: skip


def _other(
  policy: PolicyConfig, model: LanguageModelConfig, params: Params
) -> tuple[PolicyConfig, Params]:
  """A model as the reference of another one: how it is read, and placed."""
  assert policy.mesh is not None
  placed = lm_policy.placement(params, model.family, policy.mesh)
  read = dataclasses.replace(policy, model=model, lora=None)
  return read, exchange.place(params, placed)


def check_reference(
  config: RewriterConfig,
  model: LanguageModelConfig,
  other: LanguageModelConfig,
) -> None:
  """Raises ValueError if a model cannot be the reference of another one.

  Args:
    config: says what is compared.
    model, other: policy and reference, of one tokenizer.
  """
  exact = config.needs_exact_kl
  sizes = other.vocab_size, model.vocab_size
  # Models of one family may be filled up to other sizes.
  if sizes[0] < sizes[1] or (exact and sizes[0] != sizes[1]):
    needed = 'the same' if exact else 'at least as many'
    raise ValueError(
      f'the reference has a vocabulary of {sizes[0]}, the policy one of '
      f'{sizes[1]}: expected {needed}'
      + (", or another kl_estimator than 'exact'" if exact else '')
    )
  longest = config.packing.prompt_size + config.packing.lane_size
  if longest > other.max_positions:
    raise ValueError(
      f'a prompt of {config.packing.prompt_size} tokens and a rewrite of '
      f'{config.packing.lane_size} exceed the context of the reference, '
      f'{other.max_positions}'
    )


def _prepared(
  params: Params, model: LanguageModelConfig, mesh: Mesh
) -> prepare.DecodeParams:
  """As samplers take them, split where the mesh splits parameters."""
  rules = None
  if mesh_lib.splits_parameters(mesh):
    rules = pretrained.family(model.family).partition
  return prepare.prepare(params, mesh, rules)


def _check(config: RewriterConfig, prompt_lengths: Sequence[int]) -> None:
  rows = config.packing
  if rows.lane_size < config.rollout.new_tokens:
    raise ValueError(
      f'lane_size={rows.lane_size} is less than new_tokens='
      f'{config.rollout.new_tokens}: the longest rewrite has to fit into a lane'
    )
  if rows.prompt_size < prompt_lengths[-1]:
    raise ValueError(
      f'prompt_size={rows.prompt_size} is less than the longest prompt, '
      f'{prompt_lengths[-1]} tokens: it has to fit into a row'
    )
