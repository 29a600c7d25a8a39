"""A tiny rewriter with two wordings, and a coder that understands one.

The rewriter is taught to say a task either as it is or without its end, about
as often; the coder solves the first and fails on the second. So half of its
rewrites are rewarded until it learns.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from promptrl_jax import settings as settings_lib
from promptrl_jax.envs.rewriting.config import RewritingConfig
from promptrl_jax.envs.rewriting.env import RewritingEnv
from promptrl_jax.parallel import mesh as mesh_lib
from promptrl_jax.testing import tiny
from promptrl_jax.testing.scripted import ScriptedBackend
from promptrl_jax.training.rewriter import (
  algorithms,
  build,
  packing,
  policy,
  update,
)
from promptrl_jax.training.rewriter.collect import Collector
from promptrl_jax.training.rewriter.config import LossConfig, TrainConfig
from promptrl_jax.training.rewriter.learner import (
  RewriterLearner,
  RewriterState,
)
from promptrl_jax.training.state import Row, create_train_state

TASKS = tiny.tasks(4)
CLEAR = ' Write a function to add {} to a number.'
TERSE = ' Write a function to add {}.'
NEW_TOKENS = 24
ROWS = packing.PackingConfig(64, lanes=4, lane_size=NEW_TOKENS, sequences=8)
SETTINGS = {
  'iterations': 100,
  'rows_per_piece': 1,
  'packing': settings_lib.to_mapping(ROWS),
  'rollout': {
    'prompts': 4,
    'group': 4,
    'new_tokens': NEW_TOKENS,
    'temperature': 1.0,
  },
  'advantage': {'lam': 1.0},
  'reference': {'kl_coef': 0.02},
  'optimizer': {'lr': 1e-3, 'warmup': 0, 'decay': 'constant', 'b2': 0.999},
  'lora': {'rank': 4, 'alpha': 8.0},
}


def write_program(request: Any) -> str:
  """The program of the coder: right if the statement is whole."""
  match = re.search(r'add (\d+) to a number', request.messages[-1].content)
  return f'\n  return x + {match.group(1)}' if match else '\n  return y'


def make_env(
  pool: Any, coder: Any = write_program, reward_fn: Any = None, **settings: Any
) -> RewritingEnv:
  config = RewritingConfig(**{'allow_keep': False, **settings})
  return RewritingEnv(ScriptedBackend(coder), pool, config, reward_fn=reward_fn)


@functools.cache
def taught() -> Any:
  """Parameters that say CLEAR or TERSE to any of TASKS."""
  # At the scale of `tiny.params`, embeddings take three times as long.
  start = jax.tree.map(
    lambda x: jnp.copy(x) if x.ndim > 2 else x / 1.5, dict(tiny.params())
  )
  return teach(tiny.CONFIG, start, tiny.tokenizer())


def teach(model: Any, start: Any, tokenizer: Any, steps: int = 120) -> Any:
  """`taught`, of any model; takes the arrays of `start`."""
  prompts = [tokenizer.render(m) for m in make_env(None).prompts(TASKS)]
  texts = [
    wording.format(k) for k in range(len(TASKS)) for wording in (CLEAR, TERSE)
  ]
  replies = [[*ids, tokenizer.eos_id] for ids in tokenizer.encode(texts)]
  owners = [i // 2 for i in range(len(texts))]
  rows = packing.pack(prompts, replies, owners, ROWS)
  batch = update.UpdateBatch(
    rows,
    advantages=rows.mask.astype(np.float32),
    sampler_logps=np.zeros(rows.mask.shape, np.float32),
  )
  # Without the clipping, rounding decides whether a loss leaps up on its way.
  optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(1e-2))
  state = create_train_state(lambda key: start, optimizer, jax.random.key(0))
  # With an advantage of 1, REINFORCE is maximum likelihood.
  update_fn = update.make_update_fn(
    policy.PolicyConfig(model), optimizer, LossConfig(kind='reinforce')
  )
  for _ in range(steps):
    state, metrics = update_fn(state, {}, batch, 0.0)
  # Two equally likely wordings leave ln 2 per text.
  loss = float(metrics['train/policy_loss'] * metrics['train/tokens'])
  assert loss / len(texts) < 0.8
  return jax.tree.map(np.asarray, state.params)


def make_config(name: str = 'grpo', **sections: Any) -> TrainConfig:
  """Settings of an algorithm, with some fields or parts changed."""
  config = settings_lib.override(TrainConfig(), SETTINGS)
  config = settings_lib.override(config, algorithms.ALGORITHMS[name])
  if config.loss.constant_length:
    length = {'loss': {'constant_length': NEW_TOKENS}}
    config = settings_lib.override(config, length)
  switches = sections.pop('switches', ())
  config = settings_lib.override(config, sections)
  config = dataclasses.replace(config, switches=switches)
  config.check()
  return config


def make(config: TrainConfig, reference: Any = None) -> RewriterLearner:
  """A learner; all of them sample with one engine, which is compiled once."""
  start = start_of(tiny.CONFIG, taught(), tiny.tokenizer(), reference)
  learner = make_learner(start, config)
  if config.parameters == 'lora':
    return learner
  return dataclasses.replace(learner, engine=_first().engine)


@functools.cache
def _first() -> RewriterLearner:
  start = start_of(tiny.CONFIG, taught(), tiny.tokenizer())
  return make_learner(start, make_config())


def start_of(
  model: Any, params: Any, tokenizer: Any, reference: Any = None
) -> build.Start:
  """A start, and its reference from `(config, params)`."""
  if reference is not None:
    reference = build.Start('reference', *reference, tokenizer)
  return build.Start('tiny', model, params, tokenizer, reference)


def make_learner(start: build.Start, config: TrainConfig) -> RewriterLearner:
  """A learner with an engine of its own."""
  mesh = mesh_lib.make_data_mesh()
  return build.make_learner(start, config, mesh, 0, prompt_lengths=(32,))


def initial(learner: RewriterLearner) -> RewriterState:
  """The state of step 0, of which an update may take the arrays."""
  return jax.tree.map(jnp.copy, learner.initial)


def train(
  learner: RewriterLearner,
  env: RewritingEnv,
  iterations: int,
  state: RewriterState | None = None,
  seed: int = 0,
  is_boundary: Any = lambda step: False,
) -> tuple[RewriterState, list[Row]]:
  """Some iterations, and the metrics of each."""
  collector = Collector(learner, env, TASKS, seed, is_boundary)
  state, rows = state or initial(learner), []
  for _ in range(iterations):
    batch = collector.sample(state)
    rollout, rewards, row = collector.reward(state, batch)
    state, learned = learner.update(state, rollout, rewards)
    rows.append(row | learned)
  return state, rows
