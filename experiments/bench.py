"""Throughput of decoding and execution beside the floor of this machine.

  python -m experiments.bench            prints one JSON object

The floor of decoding is 2 x parameters operations per token at the rate of a
large matrix product, measured in the same run: machines are noisy, ratios are
less so.
"""

from __future__ import annotations

import dataclasses
import json

import numpy as np
from absl import app, flags

from experiments import bench_schemes
from experiments.rates import matmul_rate, seconds
from promptrl_jax.execution import Program
from promptrl_jax.llm.load import ASSETS
from promptrl_jax.models import pretrained
from promptrl_jax.parallel import mesh as mesh_lib
from promptrl_jax.sampling.decode import make_generate_fn
from promptrl_jax.sampling.methods import Sampling
from promptrl_jax.sampling.prepare import prepare
from promptrl_jax.tasks.minicode import suite

_BATCH = flags.DEFINE_integer('batch', 64, 'Rows that decode together.')
_REPEATS = flags.DEFINE_integer('repeats', 7, 'Timed runs; the median counts.')

_PROMPT, _NEW = 96, 80


def decode(batch: int, repeats: int) -> dict[str, float]:
  """Decode of the embedded coder: prompt excluded, no early exit."""
  mesh = mesh_lib.make_data_mesh()
  config, params, _ = pretrained.load_pretrained(ASSETS / 'minicode_coder')
  params = prepare(params, mesh)
  rng = np.random.default_rng(0)
  tokens = rng.integers(3, config.vocab_size, (batch, _PROMPT), np.int32)
  # A stop token that is never drawn keeps every row going to the end.
  endless = dataclasses.replace(config, eos_token_ids=())
  generate = make_generate_fn(endless, Sampling(), _NEW, mesh)

  def run(limit):
    return generate(
      params, tokens, np.ones_like(tokens, bool),
      np.full(batch, 0.8, np.float32), np.arange(batch, dtype=np.uint32),
      np.full(batch, limit, np.int32),
    )  # fmt: skip

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


def main(argv):
  if len(argv) > 1:
    raise app.UsageError(f'unknown arguments: {argv[1:]}')
  mesh_lib.use_cpu_cores()
  figures = {
    'decode': decode(_BATCH.value, _REPEATS.value),
    'execution': execution(),
  }
  print(json.dumps(figures, indent=2))


if __name__ == '__main__':
  app.run(main)
