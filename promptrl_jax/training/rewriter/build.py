"""Builds a rewriter's learner from a model folder, settings and an algorithm.

start = load_start(BackendConfig(backend='jax', model=folder))
config = make_config(TrainConfig(iterations=40), 'grpo')
learner = make_learner(start, config, mesh, seed=0)
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from promptrl_jax.llm import load
from promptrl_jax.llm.jax_lm import JaxLM
from promptrl_jax.models import lora, pretrained
from promptrl_jax.models import tokenizer as tokenizer_lib
from promptrl_jax.models.config import TransformerConfig
from promptrl_jax.models.encoder_decoder_config import LanguageModelConfig
from promptrl_jax.models.heads import ValueHead
from promptrl_jax.models.tokenizer import Tokenizer
from promptrl_jax.parallel import exchange
from promptrl_jax.parallel import mesh as mesh_lib
from promptrl_jax.rl import kl_control
from promptrl_jax.sampling import Sampler
from promptrl_jax.sampling.engine import make_engine
from promptrl_jax.sampling.methods import Sampling
from promptrl_jax.sampling.requests import EngineConfig, prompt_lengths_up_to
from promptrl_jax.training import optim
from promptrl_jax.training.rewriter import policy as policy_lib
from promptrl_jax.training.rewriter import reference, update
from promptrl_jax.training.rewriter.config import TrainConfig
from promptrl_jax.training.rewriter.learner import (
  RewriterLearner,
  RewriterState,
  prepared,
)
from promptrl_jax.training.rewriter.policy import Params, PolicyConfig
from promptrl_jax.training.state import (
  TrainState,
  initial_state,
  state_shardings,
)


@dataclasses.dataclass(frozen=True)
class Start:
  """The model that training starts from.

  Attributes:
    name: name in reports.
    config: shape of the model.
    params: float32 parameters, with `params` at the top.
    tokenizer: tokenizer of the model.
    reference: another model with this tokenizer, for the reference `model`.
  """

  name: str
  config: LanguageModelConfig
  params: Any
  tokenizer: Tokenizer
  reference: Start | None = None

  @property
  def names(self) -> dict[str, str]:
    """Names by role, `start` and, if there is one, `reference`."""
    reference = {'reference': self.reference.name} if self.reference else {}
    return {'start': self.name} | reference

  def backend(self, mesh: Mesh, new_tokens: int) -> JaxLM:
    """Returns the model as a backend whose parameters can be replaced."""
    shapes = EngineConfig()
    if shapes.new_tokens < new_tokens:
      shapes = dataclasses.replace(shapes, new_tokens=new_tokens)
    sampler = Sampler(self.config, self.params, self.tokenizer, mesh, shapes)
    return JaxLM(self.name, sampler)


def load_start(
  backend: load.BackendConfig, reference: str = '', stop: Sequence[str] = ()
) -> Start:
  """Reads the model that training starts from.

  Args:
    backend: names the model.
    reference: folder or name of the reference model, or ''.
    stop: strings that end a rewrite, the `rewrite_stop` of a template. Tokens
      that contain one become stop tokens of the model and its checkpoints.

  Raises:
    ValueError: the model is not in this process, generates no text, or is not
      sampled from as a whole; or the reference has another tokenizer.
  """
  if backend.backend != 'jax':
    raise ValueError(
      f'rewriter.backend={backend.backend!r}: only a model in this process '
      'can be trained, expected jax'
    )
  if backend.method != Sampling():
    raise ValueError(
      f'rewriter: {backend.method}: training draws from the whole '
      f'distribution, expected {Sampling()}'
    )
  start = _read(backend.model)
  if stop:
    config = tokenizer_lib.with_special_tokens(
      start.config, start.tokenizer, stop
    )
    start = dataclasses.replace(start, config=config)
  if not reference:
    return start
  other = _read(reference)
  difference = tokenizer_lib.difference(start.tokenizer, other.tokenizer)
  if difference:
    raise ValueError(
      f'reference.model={reference!r} has another tokenizer than '
      f'rewriter.model={backend.model!r}: {difference}; expected the same, '
      'since log-probs of the same tokens are compared'
    )
  return dataclasses.replace(start, reference=other)


def _read(model: str) -> Start:
  folder = load.find(model)
  config, params, tokenizer = pretrained.load_pretrained(folder)
  if not isinstance(config, LanguageModelConfig):
    raise ValueError(
      f'{folder} is a {config.family} model, which writes no text: expected a '
      'causal or an encoder-decoder language model'
    )
  name = f'{pathlib.Path(folder).name}@{pretrained.digest(folder)}'
  return Start(name, config, params, tokenizer)


def make_learner(
  start: Start,
  config: TrainConfig,
  mesh: Mesh,
  seed: int,
  *,
  prompt_lengths: Sequence[int] | None = None,
  slots: int = 16,
) -> RewriterLearner:
  """Builds the jitted functions and the state of step 0.

  Args:
    start: the model.
    config: settings.
    mesh: mesh over the devices of this process. Rows are split over `data`,
      along which other processes follow, and `fsdp`; parameters, optimizer and
      reference over `fsdp` and `tensor`, by the rules of the model's family.
    seed: seed of adapters, value head and minibatches.
    prompt_lengths: lengths that the sampler pads prompts to, ascending; None
      takes the usual ones up to `packing.prompt_size`.
    slots: completions that are decoded together.

  Raises:
    ValueError: a rewrite does not fit into the rows, the reference does not fit
      the policy, or processes cannot share the prompts equally.
  """
  own_mesh, mesh = mesh, mesh_lib.over_processes(mesh)
  config = config.shaped(mesh_lib.num_row_shards(mesh), jax.process_count())
  model = tokenizer_lib.with_special_tokens(start.config, start.tokenizer)
  shapes = _engine_config(config, prompt_lengths, slots)
  policy = _policy_config(model, config, mesh)
  params = _initial_params(start, config, policy, seed)
  shardings = policy_lib.param_shardings(params, model.family, mesh)
  trained, fixed = policy_lib.split(
    exchange.place(params, shardings), config.parameters
  )
  optimizer = optim.make_optimizer(config.optimizer, config.optimizer_steps)
  state, train_shardings = _initial_state(
    config, trained, optimizer, mesh, seed
  )
  reference_policy, reference_fixed = policy, fixed
  if config.reference.kind == 'model':
    reference_policy, reference_fixed = _other_model(start, config, policy)
  variables = policy_lib.cast(
    policy_lib.variables(policy, params), config.dtype
  )
  decode_params = prepared(variables, model, own_mesh)
  score, score_reference = _score_fns(config, policy, reference_policy)
  return RewriterLearner(
    name=start.name,
    model=start.config,
    tokenizer=start.tokenizer,
    config=config,
    initial=state,
    policy=policy,
    fixed=fixed,
    reference_policy=reference_policy,
    reference_fixed=reference_fixed,
    engine=make_engine(model, Sampling(), decode_params, own_mesh, shapes),
    mesh=mesh,
    own_mesh=own_mesh,
    score=score,
    score_reference=score_reference,
    updates=tuple(
      update.make_update_fn(
        policy, optimizer, phase.loss, train_shardings, reference_policy
      )
      for phase in config.phases
    ),
  )


def _score_fns(
  config: TrainConfig, policy: PolicyConfig, reference_policy: PolicyConfig
) -> tuple[update.ScoreFn, update.ScoreFn]:
  """Returns the jitted scores of policy and reference, one if they agree."""
  score = update.make_score_fn(policy, config.loss, reference_policy)
  if reference_policy is policy and not config.needs_exact_kl:
    return score, score
  return score, update.make_score_fn(
    reference_policy, config.loss, keep_hidden=config.needs_exact_kl
  )


def _engine_config(
  config: TrainConfig, prompt_lengths: Sequence[int] | None, slots: int
) -> EngineConfig:
  rows, new_tokens = config.packing, config.rollout.new_tokens
  if prompt_lengths is None:
    prompt_lengths = prompt_lengths_up_to(rows.prompt_size)
  if rows.lane_size < new_tokens:
    raise ValueError(
      f'lane_size={rows.lane_size} is less than new_tokens={new_tokens}: the '
      'longest rewrite has to fit into a lane'
    )
  if rows.prompt_size < prompt_lengths[-1]:
    raise ValueError(
      f'prompt_size={rows.prompt_size} is less than the longest prompt, '
      f'{prompt_lengths[-1]} tokens: it has to fit into a row'
    )
  return EngineConfig(
    slots=slots, prompt_lengths=tuple(prompt_lengths), new_tokens=new_tokens
  )


def _policy_config(
  model: LanguageModelConfig, config: TrainConfig, mesh: Mesh
) -> PolicyConfig:
  adapters = None
  if config.parameters == 'lora':
    adapters = dataclasses.replace(config.lora, family=lora.family_of(model))
  model = dataclasses.replace(model, remat=config.remat or model.remat)
  if config.unroll and isinstance(model, TransformerConfig):
    model = dataclasses.replace(model, unroll=model.num_layers)
  return PolicyConfig(
    model,
    adapters,
    config.rollout.temperature,
    config.logits_chunk,
    config.value_trunk,
    mesh,
  )


def _initial_params(
  start: Start, config: TrainConfig, policy: PolicyConfig, seed: int
) -> Params:
  """Returns the model's parameters with new adapters and a new value head."""
  params = dict(start.params)
  if policy.lora is not None:
    shapes = jax.eval_shape(lambda: start.params)
    params['adapters'] = lora.init(policy.lora, shapes, jax.random.key(seed))
  if config.value_head:
    hidden = jnp.zeros((1, start.config.hidden_size))
    params['value'] = ValueHead().init(jax.random.key(seed), hidden)['params']
  return params


def _initial_state(
  config: TrainConfig,
  trained: Params,
  optimizer: optax.GradientTransformation,
  mesh: Mesh,
  seed: int,
) -> tuple[RewriterState, TrainState]:
  """Returns the state of step 0, and the shardings of its train state."""

  def build(trained: Params) -> RewriterState:
    masters = jax.tree.map(lambda x: x.astype(jnp.float32), trained)
    return RewriterState(
      initial_state(lambda _: masters, optimizer, jax.random.key(seed)),
      reference.initial(config.reference, masters),
      kl_control.initial(config.reference.kl_coef),
    )

  replicated: Any = NamedSharding(mesh, P())
  train = state_shardings(trained, optimizer, replicated)
  has_copy = bool(jax.eval_shape(build, trained).reference)
  shardings = RewriterState(train, train.params if has_copy else {}, replicated)
  return jax.jit(build, out_shardings=shardings)(trained), train


def _other_model(
  start: Start, config: TrainConfig, policy: PolicyConfig
) -> tuple[PolicyConfig, Params]:
  """Returns the reference of the kind `model`, and its placed parameters."""
  if start.reference is None or policy.mesh is None:
    raise ValueError(
      "reference kind='model' needs a reference model: load_start(backend, "
      'reference=FOLDER)'
    )
  check_reference(config, start)
  model, params = start.reference.config, dict(start.reference.params)
  shardings = policy_lib.param_shardings(params, model.family, policy.mesh)
  other = dataclasses.replace(policy, model=model, lora=None)
  return other, exchange.place(params, shardings)


def check_reference(config: TrainConfig, start: Start) -> None:
  """Checks that a reference of the kind `model` fits the policy.

  Raises:
    ValueError: its vocabulary is too small, or its context too short.
  """
  if config.reference.kind != 'model' or start.reference is None:
    return
  model, other = start.config, start.reference.config
  exact = config.needs_exact_kl
  sizes = other.vocab_size, model.vocab_size
  # Models of one family may pad their vocabulary to different sizes.
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
