"""Measures decoding, episodes and execution per second, and compile times.

  python -m experiments.bench                    prints JSON lines, one per part
  python -m experiments.bench --parts=decode

decode     tokens/s of the embedded coder beside the floor of `floor.py`, which
           is measured in the same run because ratios are less noisy than rates
episodes   episodes/s of the training of `mbpp_ppo` after its first iterations,
           and the number of programs compiled before and after them
execution  programs/s of the execution pool
start      seconds to compile the programs of a model of 134 M parameters, with
           an empty compilation cache and with the cache of a first start
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import time

import jax
import numpy as np
from absl import app, flags

from configs.mbpp_ppo import Config
from experiments.bench import schemes as bench_schemes
from experiments.bench.floor import floor_s
from experiments.bench.models import SIZES
from experiments.bench.rates import seconds
from promptrl_jax.envs.editing.env import EditingEnv
from promptrl_jax.execution import ExecutionPool, Program
from promptrl_jax.llm.load import ASSETS, load_backend
from promptrl_jax.models import pretrained, transformer
from promptrl_jax.parallel import compilation
from promptrl_jax.parallel import mesh as mesh_lib
from promptrl_jax.sampling import EngineConfig, SamplingParams
from promptrl_jax.sampling import prepare as prepare_lib
from promptrl_jax.sampling.engine import make_engine
from promptrl_jax.sampling.lowering import compile_engine
from promptrl_jax.sampling.methods import Sampling
from promptrl_jax.sampling.requests import EngineRequest
from promptrl_jax.tasks import splits
from promptrl_jax.tasks.minicode.suite import SUITE
from promptrl_jax.training.controller.learner import make_learner

_BATCH = flags.DEFINE_integer('batch', 64, 'Rows of a decoding batch.')
_REPEATS = flags.DEFINE_integer(
  'repeats', 7, 'Timed runs, of which the median is taken.'
)
_PARTS = flags.DEFINE_list(
  'parts', 'decode,episodes,execution,start', 'Parts to measure.'
)

_PROMPT, _NEW = 96, 80
_COMPILE = 'compile_s'  # the part of `start` that runs in a separate process
_COMPILED = '/jax/core/compile/backend_compile_duration'


def decode(batch: int, repeats: int) -> dict[str, float]:
  """Measures decoding of the embedded coder, without prefill or early exit."""
  mesh = mesh_lib.make_data_mesh()
  config, params, _ = pretrained.load_pretrained(ASSETS / 'minicode_coder')
  params = prepare_lib.prepare(params, mesh)
  rng = np.random.default_rng(0)
  tokens = rng.integers(3, config.vocab_size, (batch, _PROMPT), np.int32)
  # Without stop tokens every row decodes to its limit.
  endless = dataclasses.replace(config, eos_token_ids=())
  shapes = EngineConfig(batch, (_PROMPT,), _NEW)
  engine = make_engine(endless, Sampling(), params, mesh, shapes)

  def run(limit):
    # Every prompt has a slot: all are prefilled, then all decode together.
    return engine.run(
      [
        EngineRequest(row, [SamplingParams(limit, 0.8, seed=i)])
        for i, row in enumerate(tokens.tolist())
      ]
    )

  all_tokens_s = seconds(run, _NEW, repeats=repeats)
  first_token_s = seconds(run, 1, repeats=repeats)
  tokens, taken = batch * (_NEW - 1), all_tokens_s - first_token_s
  least = floor_s(config, 'float32', batch, 0, tokens)
  return {
    'parameters': config.num_params,
    'batch': batch,
    'tokens_per_s': tokens / taken,
    'floor_tokens_per_s': tokens / least,
    'share_of_floor': least / taken,
    'prefill_tokens_per_s': batch * _PROMPT / first_token_s,
  }


def execution(count: int = 512) -> dict[str, float]:
  """Measures the pool: minicode programs with five assertions, two workers."""
  tasks = SUITE.load('train')[:count]
  programs = [Program(task.reference, task.tests) for task in tasks]
  return {'programs_per_s': bench_schemes.pool(programs, workers=2)}


def episodes(warm: int = 6, timed: int = 3) -> dict[str, float]:
  """Measures whole iterations of `mbpp_ppo` on minicode, with updates.

  A shape of the sampler is compiled when it is first met: after three
  iterations one was still to come, after six none.
  """
  config = Config()
  mesh = mesh_lib.make_data_mesh()
  coder, rewriter = (
    load_backend(role, mesh) for role in (config.coder, config.rewriter)
  )
  made = make_learner(
    config.controller, config.ppo, config.editing, config.seed
  )
  problems = [
    splits.reveal_for_training(task, config.data.protocol)
    for task in SUITE.load('train')
  ]
  compiled = []
  jax.monitoring.register_event_duration_secs_listener(
    lambda name, seconds, **_: (
      compiled.append(seconds) if name == _COMPILED else None
    )
  )
  state, first, programs = made.initial, 0.0, 0
  with ExecutionPool(config.pool.workers) as pool:
    env = EditingEnv(coder, rewriter, pool, config.editing, config.ask)
    for iteration in range(warm + timed):
      if iteration == warm:
        first, programs = sum(compiled), len(compiled)
        start = time.perf_counter()
      rollout, _ = made.sample(state, env, problems, config.seed)
      state, _ = made.update(state, rollout)
  taken = time.perf_counter() - start
  return {
    'episodes_per_s': timed * config.controller.episodes / taken,
    'compile_s': first,
    'programs_compiled': programs,
    'compiled_after_warm_up': len(compiled) - programs,
  }


def compilation_s() -> float:
  """Returns the seconds to compile prefill and decode of 8 prompts."""
  compilation.use_cache()
  mesh, config = mesh_lib.make_data_mesh(1), SIZES['large']
  params = prepare_lib.abstract(transformer.shapes(config), mesh)
  start = time.perf_counter()
  shapes = EngineConfig(8, (_PROMPT,), _NEW)
  compile_engine(config, Sampling(), params, mesh, shapes)
  return time.perf_counter() - start


def starts() -> dict[str, float]:
  """Measures `compilation_s` in two processes that share a cache."""
  command = [sys.executable, '-m', 'experiments.bench', f'--parts={_COMPILE}']
  # JAX's own least is a second, and a quick machine would store nothing.
  least = str(compilation.MIN_SECONDS)
  with tempfile.TemporaryDirectory() as folder:
    environment = {
      **os.environ,
      'JAX_COMPILATION_CACHE_DIR': folder,
      'JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS': least,
    }
    first, second = (
      json.loads(
        subprocess.run(
          command, env=environment, stdout=subprocess.PIPE, check=True
        ).stdout
      )[_COMPILE]
      for _ in range(2)
    )
  return {'first_compile_s': first, 'second_compile_s': second}


def main(argv):
  if len(argv) > 1:
    raise app.UsageError(f'unknown arguments: {argv[1:]}')
  mesh_lib.use_cpu_cores()
  parts = {
    'decode': lambda: decode(_BATCH.value, _REPEATS.value),
    'episodes': episodes,
    'execution': execution,
    'start': starts,
    _COMPILE: lambda: {_COMPILE: compilation_s()},
  }
  if unknown := sorted(set(_PARTS.value) - set(parts)):
    raise app.UsageError(f'--parts={unknown[0]}: expected {", ".join(parts)}')
  for name in _PARTS.value:
    print(json.dumps({'part': name, **parts[name]()}), flush=True)


if __name__ == '__main__':
  app.run(main)
