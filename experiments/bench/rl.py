"""Seconds of an iteration of GRPO and PPO, beside peers and a floor.

  python -m experiments.bench.rl                         prints JSON lines
  python -m experiments.bench.rl --sizes=small --algorithms=grpo --peers=
  python -m experiments.bench.rl --trl_python=A --trl_ppo_python=B \\
    --tunix_python=C

An iteration draws eight completions of 128 tokens for each of four prompts of
64, rewards them by a line of Python, scores them by a reference and makes one
step of AdamW. For PPO, peers train a critic of the policy's size and ours has a
value head on the policy; `models` says so. Each line is one way to run. For
every part, the best of ours is compared with the best of a peer.

The floor of an update is 6 operations per parameter and token and 12 per pair
of tokens that attend, head and layer, at the rate of a large product in the
same run. `floor_s` counts each completion with a prompt of its own, as peers
compute it; `least_s` counts prompts once, and the vocabulary for new tokens
alone.

All take turns, each in a process of its own, by the Python that has them
(`experiments/bench/peers`); one that is not installed is left out, and how to
install it is printed. `other_cores` is what other processes used meanwhile:
threads of torch that wait for each other lose most of their speed if it is not
about 0.
Estimate for two quiet cores: 5 minutes for the small models, an hour for the
large; --limit_s bounds what a slow one takes.
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
_ALGORITHMS = flags.DEFINE_list('algorithms', ['grpo', 'ppo'], 'To time.')
_DTYPES = flags.DEFINE_list('dtypes', ['float32', 'bfloat16'], 'Of products')
_RUNS = flags.DEFINE_integer('runs', 3, 'Timed iterations; the median counts.')
_LIMIT = flags.DEFINE_float(
  'limit_s', 150, 'No further iteration is timed once these took longer.'
)
_PEERS = flags.DEFINE_list('peers', ['trl', 'tunix'], 'Peers to time.')
_TRL = flags.DEFINE_string('trl_python', '', 'Has TRL; empty: this one.')
_TRL_PPO = flags.DEFINE_string(
  'trl_ppo_python', '', 'Has a TRL that trains by PPO; empty: this one.'
)
_TUNIX = flags.DEFINE_string('tunix_python', '', 'Has Tunix; empty: this one.')


def work(size: str) -> Work:
  """What everybody is asked for."""
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
  """Prints one line for each way of ours."""
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
  """Lines of `ours`, run in a process of its own as the peers are."""
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
