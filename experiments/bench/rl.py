"""Times an iteration of GRPO and PPO and compares it with TRL and Tunix.

  python -m experiments.bench.rl                         prints JSON lines
  python -m experiments.bench.rl --sizes=small --algorithms=grpo --peers=
  python -m experiments.bench.rl --trl_python=A --trl_ppo_python=B \\
    --tunix_python=C

An iteration samples eight completions of 128 tokens for each of four prompts of
64 tokens, computes rewards in Python, scores the completions with a reference
and takes one step of AdamW. For PPO, the peers train a critic of the policy's
size, and this project trains a value head on the policy; the field `models`
says which. Each line is one configuration. For every part of an iteration, the
best line of this project is compared with the best line of a peer.

The floor of an update is 6 operations per parameter and token, and 12 per pair
of attending tokens, head and layer, at the rate of a large product measured in
the same run. `floor_s` counts a prompt for each completion, as peers compute
it. `least_s` counts each prompt once and projects only new tokens on the
vocabulary.

All run in turn and in separate processes, with the Python that has the peer
(`experiments/bench/peers`). A peer that is not installed is skipped, and the
commands that install it are printed. `other_cores` is the CPU use of other
processes, which should be about 0: otherwise torch's threads wait for each
other. On two quiet cores the small models take 5 minutes and the large ones an
hour; --limit_s bounds the time of a slow configuration.
"""

from __future__ import annotations

import itertools
import json
import sys

import jax
from absl import app, flags

from experiments.bench.models import SHAPE, SIZES
from experiments.bench.peers import launch
from experiments.bench.peers.iterations import Work
from experiments.bench.rates import matmul_rate
from experiments.bench.rl_comparison import (
  floor_operations,
  least_operations,
  ratios,
)
from experiments.bench.rl_iteration import run, ways
from promptrl_jax.parallel import mesh as mesh_lib

_SIZES = flags.DEFINE_list('sizes', ['small', 'large'], 'Models to train.')
_ALGORITHMS = flags.DEFINE_list(
  'algorithms', ['grpo', 'ppo'], 'Algorithms to time.'
)
_DTYPES = flags.DEFINE_list(
  'dtypes', ['float32', 'bfloat16'], 'Dtypes of matrix products.'
)
_RUNS = flags.DEFINE_integer(
  'runs', 3, 'Timed iterations, of which the median is taken.'
)
_LIMIT = flags.DEFINE_float(
  'limit_s', 150, 'Seconds after which no further iteration is timed.'
)
_PEERS = flags.DEFINE_list('peers', ['trl', 'tunix'], 'Peers to time.')
_TRL = flags.DEFINE_string(
  'trl_python', '', 'Python that has TRL; empty: this one.'
)
_TRL_PPO = flags.DEFINE_string(
  'trl_ppo_python', '', 'Python that has a TRL with PPO; empty: this one.'
)
_TUNIX = flags.DEFINE_string(
  'tunix_python', '', 'Python that has Tunix; empty: this one.'
)


def work(size: str) -> Work:
  """Returns the work that this project and the peers are timed on."""
  return Work(
    size=size,
    shape={name: getattr(SIZES[size], name) for name in SHAPE},
    prompts=4,
    group=8,
    prompt=64,
    new=128,
    beta=0.04,
    learning_rate=1e-6,
    dtypes=_DTYPES.value,
    runs=_RUNS.value,
    limit_s=_LIMIT.value,
  )


def ours(size: str, algorithm: str) -> None:
  """Times this project and prints a line for each configuration."""
  mesh_lib.use_cpu_cores()
  asked, config = work(size), SIZES[size]
  rate = matmul_rate(_RUNS.value)
  for dtype, way in itertools.product(_DTYPES.value, ways(jax.device_count())):
    line = run(asked, config, algorithm, dtype, way)
    floor = floor_operations(config, asked) / rate
    least = least_operations(config, asked) / rate
    line |= {
      'matmul_gflops': round(rate / 1e9, 1),
      'floor_s': round(floor, 3),
      'least_s': round(least, 3),
      'share_of_floor': round(floor / line['update_s'], 3),
      'share_of_least': round(least / line['update_s'], 3),
    }
    print(json.dumps(line), flush=True)


def ours_apart(size: str, algorithm: str) -> list[dict]:
  """Returns the lines of `ours`, run in a separate process like the peers."""
  command = [sys.executable, '-m', 'experiments.bench.rl', '--peers=']
  command += [f'--sizes={size}', f'--algorithms={algorithm}']
  command += [f'--runs={_RUNS.value}', f'--limit_s={_LIMIT.value}']
  return launch.lines([*command, f'--dtypes={",".join(_DTYPES.value)}'])


def main(argv: list[str]) -> None:
  if len(argv) > 1:
    raise app.UsageError(f'unknown arguments: {argv[1:]}')
  for flag, values, known in (
    ('sizes', _SIZES.value, list(SIZES)),
    ('algorithms', _ALGORITHMS.value, ['grpo', 'ppo']),
    ('peers', _PEERS.value, ['trl', 'tunix']),
  ):
    if unknown := sorted(set(values) - set(known)):
      raise app.UsageError(
        f'--{flag}={",".join(values)}: {unknown[0]} is unknown, expected some '
        f'of {", ".join(known)}'
      )
  pythons = {
    ('trl', 'grpo'): _TRL.value,
    ('trl', 'ppo'): _TRL_PPO.value,
    ('tunix', 'grpo'): _TUNIX.value,
    ('tunix', 'ppo'): _TUNIX.value,
  }
  peers = {}
  for name in itertools.product(_PEERS.value, _ALGORITHMS.value):
    python = pythons[name] or sys.executable
    if launch.has(launch.TRAINERS[name], ' '.join(name), python):
      peers[name] = python
  for size, algorithm in itertools.product(_SIZES.value, _ALGORITHMS.value):
    turns = [name for name in peers if name[1] == algorithm]
    if not turns:
      ours(size, algorithm)
      continue
    mine = ours_apart(size, algorithm)
    for name in turns:
      command = launch.drive(launch.TRAINERS[name], peers[name], work(size))
      for line in ratios(mine, launch.lines(command)):
        print(json.dumps(line), flush=True)


if __name__ == '__main__':
  app.run(main)
