"""Compares tokens per second of sampling with peers and the machine's floor.

  python -m experiments.bench.sampling                   prints JSON lines
  python -m experiments.bench.sampling --sizes=small --peers=
  python -m experiments.bench.sampling --tunix_python=T --vllm_python=V

Two Qwen2-shaped models with random weights sample 128 tokens at temperature 1
after prompts of 64 tokens. Each line is one configuration (devices, dtype of
the parameters, cache, compiler), and the best line of this project is compared
with the best line of each peer. The floor of a step is the larger of two times:
its operations at the rate of the fastest large product of the same dtype, and
its bytes (weights in the dtype of the line and a float32 cache) at the rate of
a copy in memory. Both rates are measured in the same run; data in the
processor's cache are read faster.

All samplers run in turn and in separate processes: for each size this project,
then transformers (`generate`), Tunix and vLLM, with the Python that has them
(`experiments/bench/peers`). A peer that is not installed is skipped. On two
quiet cores this project takes 5 minutes and each peer 10; --limit_s bounds the
time of a slow peer, and --sizes, --batches and --dtypes select less work.
"""

from __future__ import annotations

import itertools
import json
import sys
import time

import jax
import numpy as np
from absl import app, flags

from experiments.bench.floor import floor_s
from experiments.bench.models import SHAPE, SIZES, random_params
from experiments.bench.peers import launch
from experiments.bench.peers.workload import Workload
from experiments.bench.rates import seconds
from promptrl_jax.parallel import mesh as mesh_lib
from promptrl_jax.sampling.engine import make_engine
from promptrl_jax.sampling.lowering import compile_engine
from promptrl_jax.sampling.methods import Sampling
from promptrl_jax.sampling.prepare import prepare
from promptrl_jax.sampling.requests import (
  EngineConfig,
  EngineRequest,
  SamplingParams,
)

_SIZES = flags.DEFINE_list('sizes', ['small', 'large'], 'Models to sample.')
_BATCHES = flags.DEFINE_list('batches', ['1', '8', '32'], 'Rows of a batch.')
_DTYPES = flags.DEFINE_list(
  'dtypes', ['bfloat16', 'float32'], 'Dtypes of parameters.'
)
_RUNS = flags.DEFINE_integer(
  'runs', 3, 'Timed runs, of which the median is taken.'
)
_LIMIT = flags.DEFINE_float(
  'limit_s', 60, 'Seconds after which a peer starts no further timed run.'
)
_PEERS = flags.DEFINE_list('peers', list(launch.PEERS), 'Peers to time.')
_TUNIX = flags.DEFINE_string(
  'tunix_python', '', 'Python that has Tunix; empty: this one.'
)
_VLLM = flags.DEFINE_string(
  'vllm_python', '', 'Python that has vLLM; empty: this one.'
)

_PROMPT, _NEW = 64, 128


def ours(size: str) -> None:
  """Times this project for each batch size, dtype and number of devices."""
  mesh_lib.use_cpu_cores()
  config, runs = SIZES[size], _RUNS.value
  counts = sorted({1, jax.device_count()})
  for dtype, count in itertools.product(_DTYPES.value, counts):
    mesh = mesh_lib.make_data_mesh(count)
    params = prepare(random_params(config, dtype), mesh)
    for batch in map(int, _BATCHES.value):
      if batch % count:
        continue
      rng = np.random.default_rng(0)
      tokens = rng.integers(3, config.vocab_size, (batch, _PROMPT))
      requests = [
        EngineRequest(row, [SamplingParams(_NEW, seed=i)])
        for i, row in enumerate(tokens.tolist())
      ]
      shapes = EngineConfig(batch, (_PROMPT,), _NEW, prefill_rows=batch)
      start = time.perf_counter()
      compile_engine(config, Sampling(), params, mesh, shapes)
      compile_s = time.perf_counter() - start
      engine = make_engine(config, Sampling(), params, mesh, shapes)
      taken = seconds(engine.run, requests, repeats=runs)
      least = floor_s(config, dtype, batch, 0, batch * _NEW, _PROMPT + _NEW / 2)
      print(
        json.dumps(
          {
            'size': size,
            'sampler': 'promptrl_jax',
            'dtype': dtype,
            'devices': count,
            'batch': batch,
            'tokens_per_s': round(batch * _NEW / taken, 1),
            'floor_tokens_per_s': round(batch * _NEW / least, 1),
            'share_of_floor': round(least / taken, 3),
            'compile_s': round(compile_s, 2),
          }
        ),
        flush=True,
      )


def ours_apart(size: str) -> list[dict]:
  """Returns the lines of `ours`, run in a separate process like the peers."""
  command = [sys.executable, '-m', 'experiments.bench.sampling', '--peers=']
  command += [f'--sizes={size}', f'--runs={_RUNS.value}']
  command += [f'--batches={",".join(_BATCHES.value)}']
  command += [f'--dtypes={",".join(_DTYPES.value)}']
  return launch.lines(command)


def workload(size: str) -> Workload:
  """Returns the work that the peers are timed on."""
  return Workload(
    size=size,
    shape={name: getattr(SIZES[size], name) for name in SHAPE},
    prompt=_PROMPT,
    new=_NEW,
    batches=[int(batch) for batch in _BATCHES.value],
    dtypes=_DTYPES.value,
    runs=_RUNS.value,
    limit_s=_LIMIT.value,
  )


def best(lines: list[dict]) -> dict[int, float]:
  """Returns the tokens per second of the best configuration, by batch."""
  rates: dict[int, float] = {}
  for line in lines:
    batch = line['batch']
    rates[batch] = max(rates.get(batch, 0.0), line['tokens_per_s'])
  return rates


def ratios(
  size: str, peer: str, mine: list[dict], theirs: list[dict]
) -> list[dict]:
  """Returns the best rate of this project over the peer's, by batch."""
  peers_best = best(theirs)
  return [
    {
      'size': size,
      'batch': batch,
      f'over_{peer}': round(rate / peers_best[batch], 2),
    }
    for batch, rate in best(mine).items()
  ]


def main(argv: list[str]) -> None:
  if len(argv) > 1:
    raise app.UsageError(f'unknown arguments: {argv[1:]}')
  pythons = {'tunix': _TUNIX.value, 'vllm': _VLLM.value}
  if unknown := set(_PEERS.value) - launch.PEERS.keys():
    raise app.UsageError(f'unknown peers: {sorted(unknown)}')
  peers = {}
  for name in _PEERS.value:
    python = pythons.get(name) or sys.executable
    if launch.installed(name, python):
      peers[name] = python
  for size in _SIZES.value:
    if not peers:
      ours(size)
      continue
    mine = ours_apart(size)
    for name, python in peers.items():
      theirs = launch.lines(launch.command(name, python, workload(size)))
      for line in ratios(size, name, mine, theirs):
        print(json.dumps(line), flush=True)


if __name__ == '__main__':
  app.run(main)
