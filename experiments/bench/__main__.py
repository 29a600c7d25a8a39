"""Throughput of decoding, episodes and execution, and the time of a start.

  python -m experiments.bench                    prints JSON lines, one per part
  python -m experiments.bench --parts=decode

decode     tokens/s of the embedded coder beside the floor: 2 x parameters
           operations per token at the rate of a large matrix product, measured
           in the same run; machines are noisy, ratios are less so
episodes   episodes/s of the main job's training after its first iterations, and
           what was compiled in them
execution  programs/s of the pool
start      seconds until the programs of a model of 134 M parameters are
           compiled, without and with what a first start has left on disk
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

from configs import mbpp_ppo
from experiments import controllers
from experiments.bench import schemes as bench_schemes
from experiments.bench.models import SIZES
from experiments.bench.rates import matmul_rate, seconds
from promptrl_jax.envs.editing.env import EditingEnv
from promptrl_jax.execution import ExecutionPool, Program
from promptrl_jax.llm.load import ASSETS, BackendConfig, load_backend
from promptrl_jax.models import pretrained, transformer
from promptrl_jax.parallel import compilation
from promptrl_jax.parallel import mesh as mesh_lib
from promptrl_jax.sampling import prepare as prepare_lib
from promptrl_jax.sampling.decode import make_generate_fn
from promptrl_jax.sampling.methods import Sampling
from promptrl_jax.tasks import splits
from promptrl_jax.tasks.minicode import suite
from promptrl_jax.training.controller import learner as controller

_BATCH = flags.DEFINE_integer('batch', 64, 'Rows that decode together.')
_REPEATS = flags.DEFINE_integer('repeats', 7, 'Timed runs; the median counts.')
_PARTS = flags.DEFINE_list(
  'parts', 'decode,episodes,execution,start', 'What is measured.'
)

_PROMPT, _NEW = 96, 80
_COMPILE = 'compile_s'  # the part of `start` that runs in a process of its own
_COMPILED = '/jax/core/compile/backend_compile_duration'


def decode(batch: int, repeats: int) -> dict[str, float]:
  """Decode of the embedded coder: prompt excluded, no early exit."""
  mesh = mesh_lib.make_data_mesh()
  config, params, _ = pretrained.load_pretrained(ASSETS / 'minicode_coder')
  params = prepare_lib.prepare(params, mesh)
  rng = np.random.default_rng(0)
  tokens = rng.integers(3, config.vocab_size, (batch, _PROMPT), np.int32)
  # A stop token that is never drawn keeps every row going to the end.
  endless = dataclasses.replace(config, eos_token_ids=())
  generate = make_generate_fn(endless, Sampling(), _NEW, mesh)

  def run(limit):
    return generate(
      params,
      tokens,
      np.ones_like(tokens, bool),
      np.full(batch, 0.8, np.float32),
      np.arange(batch, dtype=np.uint32),
      np.full(batch, limit, np.int32),
    )

  whole = seconds(run, _NEW, repeats=repeats)
  first = seconds(run, 1, repeats=repeats)
  rate = matmul_rate(repeats)
  tokens_per_s = batch * (_NEW - 1) / (whole - first)
  floor = rate / (2 * config.num_params)
  return {
    'parameters': config.num_params,
    'batch': batch,
    'matmul_gflops': rate / 1e9,
    'tokens_per_s': tokens_per_s,
    'floor_tokens_per_s': floor,
    'share_of_floor': tokens_per_s / floor,
    'prefill_tokens_per_s': batch * _PROMPT / first,
  }


def execution(count: int = 512) -> dict[str, float]:
  """Programs of minicode with their five assertions, two workers."""
  tasks = suite.load('train')[:count]
  programs = [Program(task.reference, task.tests) for task in tasks]
  return {'programs_per_s': bench_schemes.pool(programs, workers=2)}


def episodes(warm: int = 3, timed: int = 3) -> dict[str, float]:
  """Iterations of the main job on the embedded suite, updates included."""
  config = mbpp_ppo.get_config('minicode')
  mesh = mesh_lib.make_data_mesh()
  coder, rewriter = (
    load_backend(BackendConfig(**config[role]), mesh)
    for role in ('coder', 'rewriter')
  )
  env_config = controllers.make_env_config(config)
  made = controllers.make(config, env_config, config.seed)
  problems = [
    splits.reveal_for_training(task, config.data.protocol)
    for task in suite.load('train')
  ]
  compiled = []
  jax.monitoring.register_event_duration_secs_listener(
    lambda name, seconds, **_: (
      compiled.append(seconds) if name == _COMPILED else None
    )
  )
  state, first, programs = made.initial, 0.0, 0
  with ExecutionPool(config.pool.workers) as pool:
    env = EditingEnv(coder, rewriter, pool, env_config)
    for iteration in range(warm + timed):
      if iteration == warm:
        first, programs = sum(compiled), len(compiled)
        start = time.perf_counter()
      state, _ = controller.iterate(made, state, env, problems, config.seed)
  taken = time.perf_counter() - start
  return {
    'episodes_per_s': timed * config.controller.episodes / taken,
    'compile_s': first,
    'programs_compiled': programs,
    'compiled_after_warm_up': len(compiled) - programs,
  }


def compilation_s() -> float:
  """Seconds to compile reading 8 prompts and decoding them."""
  compilation.use_cache()
  mesh, config = mesh_lib.make_data_mesh(1), SIZES['large']
  params = prepare_lib.abstract(transformer.shapes(config), mesh)
  generate = make_generate_fn(config, Sampling(), _NEW, mesh)
  rows = lambda shape, dtype: jax.ShapeDtypeStruct(
    shape, dtype, sharding=mesh_lib.rows(mesh)
  )
  start = time.perf_counter()
  generate.lower(
    params,
    rows((8, _PROMPT), np.int32),
    rows((8, _PROMPT), bool),
    rows((8,), np.float32),
    rows((8,), np.uint32),
    rows((8,), np.int32),
  ).compile()
  return time.perf_counter() - start


def starts() -> dict[str, float]:
  """`compilation_s` in a first process and in a second one."""
  command = [sys.executable, '-m', 'experiments.bench', f'--parts={_COMPILE}']
  with tempfile.TemporaryDirectory() as folder:
    environment = {**os.environ, 'PROMPTRL_COMPILATION_CACHE': folder}
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
