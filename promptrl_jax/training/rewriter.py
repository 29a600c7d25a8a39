"""The rewriter's learner: sample, reward, score, update, once per iteration.

  tasks ─► lm_rollout ─► RewriteEnv ─► Rollout
    ─► pack ─► score (policy, reference) ─► advantages ─► update

Everything that is compiled is made once, in `make_rewriter`.

Where several processes share a run, each does the first line for its own tasks
on its own devices, however long that takes; all of them do the second, once per
iteration, on one mesh. In between, arrays are exchanged.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from promptrl_jax.envs.rewrite_env import (
  Identified,
  Pending,
  Rewarded,
  RewriteEnv,
)
from promptrl_jax.models import pretrained
from promptrl_jax.models.config import TransformerConfig
from promptrl_jax.models.heads import ValueHead
from promptrl_jax.models.tokenizer import Tokenizer
from promptrl_jax.parallel import exchange
from promptrl_jax.parallel import mesh as mesh_lib
from promptrl_jax.rl import kl_control
from promptrl_jax.sampling import prepare
from promptrl_jax.sampling.engine import Engine, make_engine
from promptrl_jax.sampling.methods import Sampling
from promptrl_jax.sampling.requests import EngineConfig
from promptrl_jax.training import (
  lm_advantages,
  lm_policy,
  lm_rollout,
  lm_update,
  packing,
  reference,
)
from promptrl_jax.training import state as state_lib
from promptrl_jax.training.lm_policy import Params, PolicyConfig
from promptrl_jax.training.lm_rollout import Rollout, Sampled
from promptrl_jax.training.rewriter_config import RewriterConfig
from promptrl_jax.training.state import TrainState, initial_state

Row = dict[str, float]
# Added up over processes; everything else is a mean.
_SUMMED = ('budget/', 'rollout/steps', 'rollout/groups', 'reward/dropped')


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
    score: see `lm_update.make_score_fn`.
    update: see `lm_update.make_update_fn`.
  """

  config: RewriterConfig
  policy: PolicyConfig
  tokenizer: Tokenizer
  engine: Engine
  mesh: Mesh
  own_mesh: Mesh
  fixed: Params
  initial: RewriterState
  score: Callable[..., lm_policy.TokenOutputs]
  update: Callable[..., tuple[TrainState, dict[str, jax.Array]]]

  def params(self, state: RewriterState) -> Params:
    """All collections."""
    return {**self.fixed, **state.learner.params}

  def decode_params(self, state: RewriterState) -> prepare.DecodeParams:
    """The policy as samplers take it."""
    params = exchange.own_copies(self.params(state), self.own_mesh)
    tree = lm_policy.variables(self.policy, params)
    tree = lm_policy.cast(tree, self.config.dtype)
    return _prepared(tree, self.policy.model, self.own_mesh)


def make_rewriter(
  model: TransformerConfig,
  params: Params,
  tokenizer: Tokenizer,
  mesh: Mesh,
  config: RewriterConfig,
  seed: int,
  lora: Any = None,
  prompt_lengths: Sequence[int] = (64, 96, 160, 256),
  slots: int = 16,
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
    prompt_lengths, slots: of the sampler, see `EngineConfig`.

  Raises:
    ValueError: what is to be trained is not there, a rewrite does not fit into
      the rows, or processes cannot share the prompts equally.
  """
  own_mesh, mesh = mesh, mesh_lib.over_processes(mesh)
  config = config.shaped(mesh_lib.num_row_shards(mesh), jax.process_count())
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
    mesh,
  )
  if config.value_head:
    head = ValueHead().init(
      jax.random.key(seed), jnp.zeros((1, model.hidden_size))
    )
    params = {**params, 'value': head['params']}
  steps = config.update.epochs * config.update.minibatches
  optimizer = config.optimizer.make(config.iterations * steps)

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
  compared = jax.eval_shape(build, trained).reference
  where = RewriterState(learner, learner.params if compared else {}, whole)
  state = jax.jit(build, out_shardings=where)(trained)
  reference.parameters(config.reference, state.reference, fixed)
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
  return Rewriter(
    config, policy, tokenizer, engine, mesh, own_mesh, fixed, state,
    lm_update.make_score_fn(policy, config.update),
    lm_update.make_update_fn(policy, optimizer, config.update, learner),
  )  # fmt: skip


def _prepared(
  params: Params, model: TransformerConfig, mesh: Mesh
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


class Training:
  """Iterations of a run, the next of which may have begun already."""

  def __init__(
    self,
    made: Rewriter,
    env: RewriteEnv[Any],
    tasks: Sequence[Identified],
    seed: int,
    is_boundary: Callable[[int], bool] = lambda step: False,
  ):
    """Begins nothing yet.

    Args:
      made: the learner.
      env: gives rewards.
      tasks: of the training split.
      seed: of the order of tasks and of the sampler.
      is_boundary: whether a run may be resumed after this many updates: no
        sampling runs ahead past it, so that a resumed run samples with the
        parameters of the run that was not interrupted.
    """
    self._made = made
    self._env = env
    self._tasks = tasks
    self._seed = seed
    self._is_boundary = is_boundary
    self._begun: tuple[Sampled, Pending] | None = None

  def iterate(self, state: RewriterState) -> tuple[RewriterState, Row]:
    """One iteration; `state` is donated."""
    made, config, step = self._made, self._made.config, int(state.step)
    started = time.perf_counter()
    current = self._begun or self._begin(state, step, 0)
    self._begun = None
    ahead = 0.0
    if config.overlap and not self._is_boundary(step + 1):
      begin = time.perf_counter()
      self._begun = self._begin(state, step + 1, 0)
      ahead = time.perf_counter() - begin
    rollout, row = self._collect(state, step, current)
    row = _over_processes(row)
    state, learned = learn(made, state, rollout)
    row |= learned
    row['time/sampled_ahead'] = ahead
    row['time/iteration'] = time.perf_counter() - started
    return state, row

  def _begin(
    self, state: RewriterState, step: int, round_: int, count: int | None = None
  ) -> tuple[Sampled, Pending]:
    """Samples rewrites of new tasks and asks what they are worth."""
    made, size = self._made, self._made.config.rollout.prompts
    # Each round of resampling walks in an order of its own.
    seed = lm_rollout.seed_of(self._seed, 'tasks', round_)
    indices = lm_rollout.draw_tasks(len(self._tasks), size, seed, step)
    indices = indices[exchange.my_rows(size)]
    made.engine.replace_params(made.decode_params(state))
    batch_seed = lm_rollout.seed_of(self._seed, step, round_)
    sampled = lm_rollout.sample(
      made.engine, made.tokenizer, self._env,
      [self._tasks[i] for i in indices[:count]],
      made.config.rollout, batch_seed,
    )  # fmt: skip
    group = made.config.rollout.group
    pending = self._env.submit(
      [task for task in sampled.tasks for _ in range(group)],
      sampled.texts,
      batch_seed,
      [sample.stopped for sample in sampled.samples],
    )
    return sampled, pending

  def _collect(
    self, state: RewriterState, step: int, current: Any
  ) -> tuple[Rollout, Row]:
    """Waits for rewards; draws again in the place of groups without one.

    A process may take more rounds than another: they share nothing here.
    """
    config = self._made.config.rollout
    wanted = config.prompts // jax.process_count()
    found, rows = Rollout([], [], [], [], []), []
    for round_ in range(config.resample_rounds + 1):
      sampled, pending = current
      result = pending.result()
      found.extend(lm_rollout.to_rollout(sampled, result.rewards, config))
      rows.append(_describe(sampled, result))
      missing = wanted - len(found.prompts)
      if missing <= 0 or round_ == config.resample_rounds:
        break
      current = self._begin(state, step, round_ + 1, missing)
    row = {
      name: float(_joined(name)([row[name] for row in rows]))
      for name in rows[0]
    }
    row['rollout/steps'] = float(sum(map(len, found.completions)))
    row['rollout/groups'] = float(len(found.prompts))
    row['rollout/rounds'] = float(len(rows))
    return found, row


def _joined(name: str) -> Callable[..., Any]:
  """Sums for what was used or lost, means for what is a rate."""
  if name == 'rollout/longest':
    return max
  is_sum = name.startswith(('budget/', 'time/')) or name == 'reward/dropped'
  return sum if is_sum else np.mean


def _describe(sampled: Sampled, result: Rewarded) -> Row:
  lengths = [len(sample.tokens) for sample in sampled.samples]
  row = result.metrics()
  return row | {
    'rollout/length': float(np.mean(lengths)),
    'rollout/longest': float(max(lengths)),
    'rollout/distinct': len(set(sampled.texts)) / len(sampled.texts),
    'budget/rewrites': float(len(sampled.samples)),
    'budget/calls': float(result.calls + len(sampled.samples)),
    'time/sample': sampled.seconds,
  }


def _over_processes(row: Row) -> Row:
  """What all processes measured together; the same on each of them."""
  found = exchange.gather_rows(np.asarray([list(row.values())]))
  return {
    name: float((np.sum if name.startswith(_SUMMED) else np.mean)(values))
    for name, values in zip(row, found.T, strict=True)
  }


def learn(
  made: Rewriter, state: RewriterState, rollout: Rollout
) -> tuple[RewriterState, Row]:
  """One update; `state` is donated. Without a completion, only a step.

  Args:
    made: the learner.
    state: the same on all processes.
    rollout: of this process.
  """
  config, started = made.config, time.perf_counter()
  rows = packing.pack(
    rollout.prompts, rollout.completions, rollout.owners, config.packing
  )
  # All processes give as many, or none of them learns.
  most, num_rows = exchange.gather_rows(
    np.asarray([[len(rollout.completions), len(rows.tokens)]])
  ).max(axis=0)
  if not most:
    learner = dataclasses.replace(state.learner, step=state.step + 1)
    waiting = {'time/score': 0.0, 'time/update': 0.0}
    return RewriterState(learner, state.reference, state.kl), waiting
  batch, sampler_logps = _gathered(config, rollout, most)
  first = jax.process_index() * (len(batch.rewards) // jax.process_count())
  rows = packing.part_of(rows, num_rows, first)
  on_mesh = exchange.global_rows(rows, made.mesh)
  all_rows = exchange.gather_rows(rows)
  batch = _scored(made, state, batch, all_rows, on_mesh)
  advantages, returns = lm_advantages.advantages(
    config.advantage, batch, float(state.kl.coef)
  )
  spread = lambda x: None if x is None else packing.spread(rows, x)
  data = {
    'advantages': spread(advantages),
    'sampler_logps': spread(sampler_logps),
    'old_logps': None if config.update.is_one_step else spread(batch.logps),
    'ref_logps': spread(batch.ref_logps),
    'returns': spread(returns),
    'old_values': spread(batch.values),
  }
  scored = time.perf_counter()
  in_loss = config.advantage.kind not in lm_advantages.PAY_KL
  learner, metrics = made.update(
    state.learner, made.fixed,
    lm_update.LMBatch(on_mesh, **exchange.global_rows(data, made.mesh)),
    state.kl.coef * in_loss,
  )  # fmt: skip
  step = int(learner.step)
  state = RewriterState(
    learner,
    reference.follow(config.reference, state.reference, learner.params, step),
    reference.steer(
      config.reference, state.kl, metrics.get('train/kl', jnp.zeros(()))
    ),
  )
  row = {name: float(value) for name, value in metrics.items()}
  there = all_rows.mask.any((1, 2))
  return state, row | {
    'rollout/trained_reward': float(
      np.mean(batch.rewards[batch.mask.any(1)], dtype=np.float64)
    ),
    'train/kl_coef': float(state.kl.coef),
    'train/packed': float(np.mean(all_rows.segments[there] > 0)),
    'time/score': scored - started,
    'time/update': time.perf_counter() - scored,
  }


def _gathered(
  config: RewriterConfig, rollout: Rollout, most: int
) -> tuple[lm_advantages.Scored, np.ndarray]:
  """Completions of all processes [N], and the sampler's log-probs [N, C].

  Groups stay within a process. N is that of a full batch, so that what follows
  is compiled once.

  Args:
    config: says how many that is.
    rollout: of this process.
    most: completions that any process has.
  """
  share = exchange.my_rows(config.rollout.prompts * config.rollout.group)
  count = max(share.stop - share.start, int(most))
  fill = [0] * (count - len(rollout.completions))
  mask = np.zeros((count, config.packing.lane_size), bool)
  sampler_logps = np.zeros(mask.shape, np.float32)
  for number, logps in enumerate(rollout.sampler_logps):
    mask[number, : len(logps)] = True
    sampler_logps[number, : len(logps)] = logps
  groups = np.asarray([*rollout.owners, *fill], np.int32)
  batch = lm_advantages.Scored(
    rewards=np.asarray([*rollout.rewards, *fill], np.float32),
    groups=groups + jax.process_index() * count,
    mask=mask,
  )
  return exchange.gather_rows((batch, sampler_logps))


def _scored(
  made: Rewriter,
  state: RewriterState,
  batch: lm_advantages.Scored,
  rows: packing.Packed,
  on_mesh: packing.Packed,
) -> lm_advantages.Scored:
  """Adds log-probs and values, under policy and reference.

  Args:
    made, state: say which are needed.
    batch: N completions, of all processes.
    rows: of all processes.
    on_mesh: the same, split over devices.
  """
  config = made.config
  gather = lambda x: packing.gather(
    rows, exchange.to_host(x), len(batch.rewards)
  )
  needs_policy = not config.update.is_one_step or (
    config.value_head or config.advantage.kind in lm_advantages.PAY_KL
  )
  fields = {}
  if needs_policy:
    found = made.score(made.params(state), on_mesh)
    fields['logps'] = gather(found.logps)
    if found.values is not None:
      fields['values'] = gather(found.values)
  parameters = reference.parameters(
    config.reference, state.reference, made.fixed
  )
  if parameters is not None:
    fields['ref_logps'] = gather(made.score(parameters, on_mesh).logps)
  return dataclasses.replace(batch, **fields)
