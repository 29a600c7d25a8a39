"""Measures a model of a billion random parameters against the rates of a GPU.

  python -m experiments.bench.gpu                  prints JSON lines
  python -m experiments.bench.gpu --size=small --batch=4 --prompt=64 --new=32

The rates are those of a copy in the GPU's memory (bytes read and written) and
of a large bfloat16 matrix product. Each part is compared with the least work
that it needs, as a share of the rate:

  prefill  operations of the forward pass, with logits for last tokens only
  decode   bytes of weights and cache that are read for each new token
  score    operations of a forward pass with log-probs, in an iteration of GRPO
  update   operations of the forward and backward passes of that iteration

Trained parameters and AdamW's state are float32. They take 20 bytes per
parameter; with the copies of the reference and the sampler a model of a billion
parameters takes about 30 GB. The benchmark also runs on a CPU.
"""

from __future__ import annotations

import dataclasses
import json
import time

import jax
import jax.numpy as jnp
import numpy as np
from absl import app, flags

from experiments.bench import rl_iteration
from experiments.bench.floor import step_bytes
from experiments.bench.models import SHAPE, SIZES, random_params
from experiments.bench.peers.iterations import Work
from experiments.bench.rates import matmul_rate, memory_rate, seconds
from experiments.bench.rl_comparison import (
  forward_operations,
  least_operations,
)
from promptrl_jax.models import presets
from promptrl_jax.models.config import TransformerConfig
from promptrl_jax.parallel import mesh as mesh_lib
from promptrl_jax.sampling.engine import make_engine
from promptrl_jax.sampling.methods import Sampling
from promptrl_jax.sampling.prepare import prepare
from promptrl_jax.sampling.requests import (
  EngineConfig,
  EngineRequest,
  SamplingParams,
)

_SHAPES = SIZES | {
  # Llama 3.2 1B
  'llama_1b': dataclasses.replace(
    presets.find('llama_3_2_3b_instruct').config,
    hidden_size=2048,
    num_layers=16,
    num_heads=32,
    head_size=64,
    eos_token_ids=(),
  ),
}
_SIZE = flags.DEFINE_enum(
  'size', 'llama_1b', list(_SHAPES), 'Shape of the model.'
)
_BATCH = flags.DEFINE_integer('batch', 64, 'Rows of prefill and decode.')
_PROMPT = flags.DEFINE_integer('prompt', 512, 'Tokens of a prompt.')
_NEW = flags.DEFINE_integer('new', 256, 'New tokens of each row.')
_PROMPTS = flags.DEFINE_integer(
  'prompts', 16, 'Prompts of an iteration of GRPO.'
)
_GROUP = flags.DEFINE_integer('group', 8, 'Completions of each prompt.')
_MICRO = flags.DEFINE_integer('micro_batches', 8, 'Micro-batches of an update.')
_RUNS = flags.DEFINE_integer(
  'runs', 5, 'Timed runs, of which the median is taken.'
)

_DTYPE = 'bfloat16'


def sampling(config: TransformerConfig, rate: float, copy: float) -> None:
  """Measures prefill and decode and prints a line for each."""
  rows, length, new = _BATCH.value, _PROMPT.value, _NEW.value
  mesh = mesh_lib.make_data_mesh(1)
  params = prepare(random_params(config, _DTYPE), mesh)
  shape = rows, length
  tokens = np.random.default_rng(0).integers(3, config.vocab_size, shape)
  mask = jnp.ones(shape, bool)
  engine = make_engine(
    config, Sampling(), params, mesh, EngineConfig(rows, (length,), new)
  )
  read = engine.programs.prefill_fn
  taken = seconds(read, params, jnp.asarray(tokens), mask, repeats=_RUNS.value)
  report(
    program='prefill',
    rows=rows,
    prompt=length,
    tokens_per_s=rows * length / taken,
    share_of_matmul=forward_operations(config, rows, length) / rate / taken,
  )
  ask = lambda most: [
    EngineRequest(row, [SamplingParams(most, seed=i)])
    for i, row in enumerate(tokens.tolist())
  ]
  # Two limits of the same program differ in decoding steps only.
  short, long = (
    seconds(engine.run, ask(most), repeats=_RUNS.value) for most in (1, new)
  )
  step = (long - short) / (new - 1)
  least = step_bytes(config, rows, length + new / 2, _DTYPE)
  report(
    program='decode',
    rows=rows,
    tokens_per_s=rows / step,
    bytes_per_s=least / step,
    share_of_copy=least / copy / step,
  )


def training(config: TransformerConfig, rate: float) -> None:
  """Measures an iteration of GRPO and prints its line."""
  asked = Work(
    size=_SIZE.value,
    shape={name: getattr(config, name) for name in SHAPE},
    prompts=_PROMPTS.value,
    group=_GROUP.value,
    prompt=_PROMPT.value,
    new=_NEW.value,
    beta=0.04,
    learning_rate=1e-6,
    dtypes=[_DTYPE],
    runs=_RUNS.value,
    limit_s=300,
  )
  way = rl_iteration.Way(1, _MICRO.value)
  line = rl_iteration.run(asked, config, 'grpo', _DTYPE, way)
  least = least_operations(config, asked)
  drawn = asked.sequences * asked.new
  report(
    program='grpo',
    **{name: line[f'{name}_s'] for name in ('rollout', 'score', 'update')},
    rollout_tokens_per_s=drawn / line['rollout_s'],
    update_tokens_per_s=drawn / line['update_s'],
    score_share_of_matmul=least / 3 / rate / line['score_s'],
    update_share_of_matmul=least / rate / line['update_s'],
  )


def report(**line: object) -> None:
  """Prints a line of JSON with floats of four digits."""
  rounded = {
    name: float(f'{value:.4g}') if isinstance(value, float) else value
    for name, value in line.items()
  }
  print(json.dumps(rounded), flush=True)


def main(argv: list[str]) -> None:
  if len(argv) > 1:
    raise app.UsageError(f'unknown arguments: {argv[1:]}')
  if _PROMPTS.value % _MICRO.value:
    raise app.UsageError(
      f'--prompts={_PROMPTS.value} must be a multiple of '
      f'--micro_batches={_MICRO.value}'
    )
  rate = matmul_rate(_RUNS.value, dtype=_DTYPE)
  copy = memory_rate(_RUNS.value)
  report(
    device=jax.devices()[0].device_kind,
    date=time.strftime('%Y-%m-%d'),
    jax=jax.__version__,
    size=_SIZE.value,
    matmul_per_s=rate,
    copy_bytes_per_s=copy,
  )
  config = _SHAPES[_SIZE.value]
  if jax.default_backend() != 'cpu':
    config = dataclasses.replace(config, dtype=_DTYPE)
  sampling(config, rate, copy)
  training(config, rate)


if __name__ == '__main__':
  app.run(main)
