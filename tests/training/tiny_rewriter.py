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

from configs import mbpp_grpo
from promptrl_jax.envs.rewriting.config import RewritingConfig
from promptrl_jax.envs.rewriting.env import RewritingEnv
from promptrl_jax.models import lora
from promptrl_jax.parallel import mesh as mesh_lib
from promptrl_jax.testing import tiny
from promptrl_jax.testing.scripted import ScriptedBackend
from promptrl_jax.training.rewriter import iteration as rewriter_training
from promptrl_jax.training.rewriter import learner as rewriter
from promptrl_jax.training.rewriter import packing
from promptrl_jax.training.rewriter import policy as lm_policy
from promptrl_jax.training.rewriter import update as lm_update
from promptrl_jax.training.rewriter.advantages import AdvantageConfig
from promptrl_jax.training.rewriter.config import (
  OptimizerConfig,
  RewriterConfig,
)
from promptrl_jax.training.rewriter.reference import ReferenceConfig
from promptrl_jax.training.rewriter.rollout import RolloutConfig
from promptrl_jax.training.rewriter.update_config import LMUpdateConfig
from promptrl_jax.training.state import create_train_state

TASKS = tiny.tasks(4)
CLEAR = ' Write a function to add {} to a number.'
TERSE = ' Write a function to add {}.'
NEW_TOKENS = 24
ROWS = packing.PackingConfig(64, lanes=4, lane_size=NEW_TOKENS, sequences=8)
LORA = lora.LoraConfig(rank=4, alpha=8.0)


def write_program(request: Any) -> str:
  """The program of the coder: right if the statement is whole."""
  found = re.search(r'add (\d+) to a number', request.messages[-1].content)
  return f'\n  return x + {found.group(1)}' if found else '\n  return y'


def make_env(
  pool: Any, coder: Any = write_program, reward_fn: Any = None, **settings: Any
) -> RewritingEnv:
  return RewritingEnv(
    ScriptedBackend(coder), pool, RewritingConfig(**settings), reward_fn
  )


@functools.cache
def taught() -> Any:
  """Parameters that say CLEAR or TERSE to any of TASKS."""
  # At the scale of `tiny.params`, embeddings take three times as long.
  start = jax.tree.map(
    lambda x: jnp.copy(x) if x.ndim > 2 else x / 1.5, dict(tiny.params())
  )
  return teach(tiny.CONFIG, start, tiny.tokenizer())


def teach(model: Any, start: Any, tokenizer: Any, lr: float = 5e-3) -> Any:
  """`taught`, of any model; takes the arrays of `start`."""
  env = make_env(None)
  prompts = [tokenizer.render(m) for m in env.prompts(TASKS)]
  texts = [
    wording.format(k) for k in range(len(TASKS)) for wording in (CLEAR, TERSE)
  ]
  replies = [[*ids, tokenizer.eos_id] for ids in tokenizer.encode(texts)]
  owners = [i // 2 for i in range(len(texts))]
  rows = packing.pack(prompts, replies, owners, ROWS)
  batch = lm_update.LMBatch(
    rows,
    advantages=rows.mask.astype(np.float32),
    sampler_logps=np.zeros(rows.mask.shape, np.float32),
  )
  policy = lm_policy.PolicyConfig(model)
  optimizer = optax.adam(lr)
  state = create_train_state(lambda key: start, optimizer, jax.random.key(0))
  # With an advantage of 1, REINFORCE is maximum likelihood.
  update = lm_update.make_update_fn(
    policy, optimizer, LMUpdateConfig(loss='reinforce')
  )
  for _ in range(250):
    state, metrics = update(state, {}, batch, 0.0)
  # Two equally likely wordings leave ln 2 per text.
  loss = float(metrics['train/policy_loss'] * metrics['train/tokens'])
  assert loss / len(texts) < 0.8
  return jax.tree.map(np.asarray, state.params)


def make_config(name: str = 'grpo', **sections: Any) -> RewriterConfig:
  """Settings of an algorithm of `configs.mbpp_grpo`.

  Args:
    name: of the algorithm.
    **sections: fields, or dicts of fields of a part, that are set besides.
  """
  parts: dict[str, Any] = {
    'rollout': {'prompts': 4, 'group': 4, 'new_tokens': NEW_TOKENS},
    'advantage': {'lam': 1.0},
    'update': {},
    'reference': {'kl_coef': 0.02},
    'optimizer': {'lr': 1e-3},
  }
  whole: dict[str, Any] = {
    'iterations': 100, 'packing': ROWS, 'rows_per_piece': 1,
  }  # fmt: skip
  for path, value in mbpp_grpo.ALGORITHMS[name].items():
    section, _, field = path.rpartition('.')
    section = {'learner': 'update'}.get(section, section)
    (whole if section == 'train' else parts[section])[field] = value
  if parts['update'].get('constant_length'):
    parts['update']['constant_length'] = NEW_TOKENS
  for section, value in sections.items():
    if section in parts:
      parts[section] |= value
    else:
      whole[section] = value
  return RewriterConfig(
    **whole,
    rollout=RolloutConfig(**parts['rollout']),
    advantage=AdvantageConfig(**parts['advantage']),
    update=LMUpdateConfig(**parts['update']),
    reference=ReferenceConfig(**parts['reference']),
    optimizer=OptimizerConfig(**parts['optimizer']),
  )


def make(config: RewriterConfig, other: Any = None) -> rewriter.Rewriter:
  """A learner; all of them sample with one engine, which is compiled once."""
  made = _make(config, other)
  if config.train == 'lora':
    return made
  return dataclasses.replace(made, engine=_first().engine)


def _make(config: RewriterConfig, other: Any = None) -> rewriter.Rewriter:
  return build(tiny.CONFIG, taught(), tiny.tokenizer(), config, LORA, other)


def build(
  model: Any,
  params: Any,
  tokenizer: Any,
  config: RewriterConfig,
  adapters: lora.LoraConfig,
  other: Any = None,
) -> rewriter.Rewriter:
  """A learner with an engine of its own, and adapters if they are trained."""
  params, chosen = dict(params), None
  if config.train == 'lora':
    chosen = adapters
    shapes = jax.eval_shape(lambda: params)
    params['adapters'] = lora.init(adapters, shapes, jax.random.key(1))
  return rewriter.make_rewriter(
    model, params, tokenizer, mesh_lib.make_data_mesh(), config,
    seed=0, lora=chosen, prompt_lengths=(32,), slots=16, other=other,
  )  # fmt: skip


@functools.cache
def _first() -> rewriter.Rewriter:
  return _make(make_config())


def start(made: rewriter.Rewriter) -> rewriter.RewriterState:
  """The state of step 0, of which an update may take the arrays."""
  return jax.tree.map(jnp.copy, made.initial)


def train(
  made: rewriter.Rewriter,
  env: RewritingEnv,
  iterations: int,
  state: rewriter.RewriterState | None = None,
  seed: int = 0,
  is_boundary: Any = lambda step: False,
) -> tuple[rewriter.RewriterState, list[rewriter.Row]]:
  """Some iterations, and the metrics of each."""
  training = rewriter_training.Training(made, env, TASKS, seed, is_boundary)
  state, rows = state or start(made), []
  for _ in range(iterations):
    state, row = training.iterate(state)
    rows.append(row)
  return state, rows
