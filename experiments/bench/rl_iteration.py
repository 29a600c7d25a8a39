"""Times one iteration of GRPO or PPO on random weights, part by part.

The rollout includes the cast of the trained parameters and their layout for
decoding, which every update requires. The score packs each prompt and its
completions into a row and computes log-probs of the reference, and for PPO also
values. The update is one step of AdamW.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import NamedSharding, PartitionSpec

from experiments.bench.models import normal
from experiments.bench.peers import iterations
from experiments.bench.peers.iterations import Clock, Work
from promptrl_jax.models.config import TransformerConfig
from promptrl_jax.models.heads import ValueHead
from promptrl_jax.parallel import mesh as mesh_lib
from promptrl_jax.rl.completions import (
  completion_gae,
  to_tokens,
  token_rewards,
)
from promptrl_jax.rl.groups import group_advantages
from promptrl_jax.rl.kl import token_kl
from promptrl_jax.rl.masked import normalize
from promptrl_jax.sampling.engine import Engine, make_engine
from promptrl_jax.sampling.methods import Sampling
from promptrl_jax.sampling.prepare import prepare
from promptrl_jax.sampling.requests import (
  EngineConfig,
  EngineRequest,
  SamplingParams,
)
from promptrl_jax.training.rewriter import packing
from promptrl_jax.training.rewriter import policy as policy_lib
from promptrl_jax.training.rewriter.config import LossConfig
from promptrl_jax.training.rewriter.policy import PolicyConfig
from promptrl_jax.training.rewriter.update import (
  UpdateBatch,
  make_score_fn,
  make_update_fn,
)
from promptrl_jax.training.state import TrainState, create_train_state

# Dtype of the parameters for decoding, the fastest on CPU devices for batches
# of eight rows or more.
_DECODED = 'bfloat16'


class Way(NamedTuple):
  """Configuration of the update."""

  devices: int  # devices over which rows are split
  micro_batches: int


def ways(devices: int) -> list[Way]:
  """Returns ways with one device of all cores, and with rows over devices."""
  split = [Way(devices, 1)] if devices > 1 else []
  return [Way(1, 1), Way(1, 2), *split]


class Programs(NamedTuple):
  """The jitted functions of an iteration."""

  engine: Engine
  score: Callable[..., Any]
  update: Callable[..., Any]
  advantages: Callable[..., Any]


def init(config: TransformerConfig, algorithm: str, key: jax.Array) -> Any:
  """Returns random weights, with a value head for PPO."""
  params = normal(config, key)
  if algorithm == 'ppo':
    hidden = jnp.zeros(config.hidden_size)
    params['value'] = ValueHead().init(key, hidden)['params']
  return params


def grpo_advantages(
  asked: Work, rewards: jax.Array, mask: jax.Array
) -> jax.Array:
  """Returns group-relative advantages [N, C] of N completions."""
  groups = jnp.arange(asked.sequences) // asked.group
  return to_tokens(group_advantages(rewards, groups, asked.prompts), mask)


def ppo_advantages(
  asked: Work,
  rewards: jax.Array,
  mask: jax.Array,
  logps: jax.Array,
  ref_logps: jax.Array,
  values: jax.Array,
) -> tuple[jax.Array, jax.Array]:
  """Returns advantages and returns [N, C], with the KL in the token rewards."""
  divergence = token_kl(logps, ref_logps, mask, kind='k1')
  penalised = token_rewards(rewards, mask, divergence, asked.beta)
  advantages = completion_gae(penalised, values, mask)
  return normalize(advantages, mask), advantages + values


def run(
  asked: Work, config: TransformerConfig, algorithm: str, dtype: str, way: Way
) -> dict[str, Any]:
  """Times iterations and returns the line of `Clock.line`.

  Args:
    asked: the work that this project and the peers are timed on.
    config: the model.
    algorithm: `grpo` or `ppo`.
    dtype: dtype of matrix products; activations and trained parameters are
      float32.
    way: configuration of the update.
  """
  is_ppo = algorithm == 'ppo'
  everywhere = mesh_lib.make_data_mesh()
  mesh = mesh_lib.make_data_mesh(way.devices)
  copied = NamedSharding(mesh, PartitionSpec())
  # Products in 16 bits with float32 activations are the fastest on a CPU.
  policy = PolicyConfig(
    dataclasses.replace(config, unroll=config.num_layers), mesh=mesh
  )
  settings = LossConfig(
    aggregation='token_mean' if is_ppo else 'sequence_mean',
    micro_batches=way.micro_batches,
    compute_dtype=dtype,
  )
  optimizer = optax.chain(
    optax.clip_by_global_norm(1.0), optax.adamw(asked.learning_rate)
  )
  state = create_train_state(
    lambda key: init(config, algorithm, key),
    optimizer,
    jax.random.key(0),
    out_shardings=copied,
  )
  reference = {'params': jax.tree.map(jnp.copy, state.params['params'])}
  advantages = ppo_advantages if is_ppo else grpo_advantages
  decoded = prepare(
    policy_lib.cast({'params': state.params['params']}, _DECODED), everywhere
  )
  shapes = EngineConfig(asked.sequences, (asked.prompt,), asked.new)
  programs = Programs(
    make_engine(config, Sampling(), decoded, everywhere, shapes),
    make_score_fn(policy, settings),
    make_update_fn(policy, optimizer, settings),
    jax.jit(lambda *arrays: advantages(asked, *arrays)),
  )
  packed = packing.PackingConfig(
    prompt_size=asked.prompt,
    lanes=asked.group,
    lane_size=asked.new,
    sequences=asked.group,
    row_multiple=way.devices * way.micro_batches,
  )
  texts = iterations.texts(asked, asked.prompts)
  prompts = [[int(word) for word in text.split()] for text in texts]
  clock = Clock(asked, rest='update')
  with clock.running():
    for number in range(10**9):
      clock.enter('rollout')
      drawn = rollout(asked, programs, everywhere, state, prompts, number)
      clock.enter('score')
      batch = score(asked, programs, packed, state, reference, prompts, drawn)
      clock.enter('update')
      state, metrics = programs.update(
        state, {}, batch, 0.0 if is_ppo else asked.beta
      )
      jax.block_until_ready((state, metrics))
      clock.iteration_ends()
  models = 'policy+reference' + ('+value head' if is_ppo else '')
  return clock.line(
    'promptrl_jax', algorithm, dtype=dtype, **way._asdict(), models=models
  )


def rollout(
  asked: Work,
  programs: Programs,
  mesh: jax.sharding.Mesh,
  state: TrainState,
  prompts: list[list[int]],
  number: int,
) -> tuple[np.ndarray, np.ndarray]:
  """Samples the completions of iteration `number`.

  Returns:
    int32 [N, C] tokens and float32 [N, C] log-probs, one group after the other.
  """
  params = policy_lib.cast({'params': state.params['params']}, _DECODED)
  programs.engine.replace_params(prepare(params, mesh))
  first = number * asked.sequences
  samples = programs.engine.run(
    [
      EngineRequest(
        prompt,
        [
          SamplingParams(asked.new, seed=first + i * asked.group + member)
          for member in range(asked.group)
        ],
      )
      for i, prompt in enumerate(prompts)
    ]
  )
  drawn = [sample for group in samples for sample in group]
  return (
    np.stack([sample.tokens for sample in drawn]),
    np.stack([sample.logps for sample in drawn]),
  )


def score(
  asked: Work,
  programs: Programs,
  config: packing.PackingConfig,
  state: TrainState,
  reference: Any,
  prompts: list[list[int]],
  drawn: tuple[np.ndarray, np.ndarray],
) -> UpdateBatch:
  """Rewards completions and packs them with all that the update reads."""
  tokens, logps = drawn
  completions = tokens.tolist()
  rewards = np.asarray(iterations.even(asked, completions), np.float32)
  owners = [i // asked.group for i in range(asked.sequences)]
  rows = packing.pack(prompts, completions, owners, config)
  ref_logps = programs.score(reference, rows).logps
  spread = lambda values: packing.spread(rows, np.asarray(values))
  mask = np.ones(tokens.shape, bool)
  batch = UpdateBatch(
    rows=rows, advantages=None, sampler_logps=spread(logps), ref_logps=ref_logps
  )
  if 'value' not in state.params:
    advantages = programs.advantages(rewards, mask)
    return dataclasses.replace(batch, advantages=spread(advantages))
  outputs = programs.score(state.params, rows)
  gather = lambda values: packing.gather(rows, values, asked.sequences)
  advantages, returns = programs.advantages(
    rewards,
    mask,
    gather(outputs.logps),
    gather(ref_logps),
    gather(outputs.values),
  )
  return dataclasses.replace(
    batch,
    advantages=spread(advantages),
    returns=spread(returns),
    old_values=outputs.values,
    ref_logps=None,  # the KL is in the rewards
  )
