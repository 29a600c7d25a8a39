"""The bench of the execution pool and what it is compared with."""

from __future__ import annotations

import itertools
import json
import os
import pathlib
import subprocess
import sys

import pytest

from experiments.bench import execution as bench_execution
from experiments.bench import soak as bench_soak
from experiments.bench.soak import Usage
from promptrl_jax.execution import Program, ProgramResult
from tests.experiments import commands

ROOT = pathlib.Path(__file__).parents[3]
TESTS = ('assert f(1) == 1', 'assert f(2) == 2', 'assert f([]) == []')
RIGHT = Program('def f(x): return x', TESTS)
WRONG = Program('def f(x): return 1', TESTS)
ROW = {
  'task_id': 2,
  'code': RIGHT.code,
  'test_list': [*TESTS, 'assert f(3) == 4'],
  'test_setup_code': 'y = 1',
}


@pytest.mark.slow
def test_the_command_prints_rates_and_their_ratios():
  result = commands.run_fresh(
    *('experiments.bench.execution', '--mbpp='),
    *('--count=16', '--rounds=1', '--soak=80'),
    timeout=120,
  )
  assert result.returncode == 0, result.stderr[-3000:]
  figures = json.loads(result.stdout)
  assert (figures['source'], figures['workers']) == ('minicode', 2)
  assert (figures['programs'], figures['assertions']) == (16, 48)
  pool = figures['pool_programs_per_s']
  human_eval = figures['human_eval_scheme_programs_per_s']
  floor = figures['fork_floor_per_core_per_s']
  for key, ratio in (
    ('pool_over_human_eval_scheme', pool / human_eval),
    ('pool_over_fork_floor_of_one_core', pool / floor),
    (
      'pool_per_core_over_fork_floor',
      pool / floor / min(2, figures['cores']),
    ),
  ):
    assert figures[key] == pytest.approx(ratio, abs=2e-3)
  assert figures['soak']['programs'] == 80
  assert figures['soak']['processes'] >= 5


def test_mbpp_gives_three_assertions_and_leaves_out_the_slow_task(tmp_path):
  path = tmp_path / 'mbpp.jsonl'
  rows = [ROW, {**ROW, 'task_id': 123, 'code': 'slow'}]
  path.write_text('\n'.join(json.dumps(row) for row in rows))
  programs = bench_execution.load(str(path), 5)
  assert len(set(programs)) == 5
  for program in programs:
    assert program.code.startswith(RIGHT.code)
    assert (program.tests, program.setup) == (TESTS, 'y = 1')


def in_a_small_process(expression: str):
  """Value of an expression; what forks must not do so beside JAX's threads."""
  script = f"""
import json
from experiments.bench import schemes as bench_schemes
from promptrl_jax.execution import Program
def error_of(measure, *args):
  try: return measure(*args)
  except RuntimeError as error: return str(error)
print(json.dumps({expression}))"""
  result = subprocess.run(
    [sys.executable, '-c', script],
    cwd=ROOT,
    capture_output=True,
    text=True,
    timeout=60,
  )
  assert result.returncode == 0, result.stderr[-3000:]
  return json.loads(result.stdout)


def test_the_scheme_of_human_eval_judges():
  codes = {
    RIGHT.code: 'passed',
    WRONG.code: 'failed: ',
    'def f(': 'failed: ',
    'while True: pass': 'timed out',
    'import os; os._exit(0)': 'timed out',
  }
  verdicts = in_a_small_process(
    f'[bench_schemes.check_with_manager(Program(code, {TESTS}), 0.5) '
    f'for code in {[*codes]}]'
  )
  for verdict, expected in zip(verdicts, codes.values(), strict=True):
    assert verdict.startswith(expected)


@pytest.mark.parametrize('scheme', ['pool', 'human_eval'])
def test_a_time_with_a_failed_program_is_not_reported(scheme):
  codes = [[RIGHT.code], [RIGHT.code, WRONG.code]]
  right, wrong = in_a_small_process(
    f'[error_of(bench_schemes.{scheme}, [Program(c, {TESTS}) for c in some], 1)'
    f' for some in {codes}]'
  )
  assert right > 0
  assert wrong.startswith('1 of 2 reference programs')


def test_runaways_are_two_percent_and_their_cost_is_their_limit():
  programs = list(itertools.islice(bench_execution.numbered([RIGHT]), 100))
  figures = bench_execution.runaways(programs, workers=1, cpu_s=1.0)
  assert (figures['programs'], figures['endless']) == (100, 2)
  assert figures['ms_per_endless_program'] > 500


def test_growth_is_found_and_named():
  before = {1: Usage(50.0, 9), 2: Usage(20.0, None), 3: Usage(1.0, 1)}
  assert bench_soak.grown(before, before) == []
  after = {1: Usage(70.0, 10), 2: Usage(21.0, None), 4: Usage(1.0, 1)}
  assert bench_soak.grown(before, after) == [
    'process 3 has ended',
    'process 4 has begun',
    'memory of 1 went from 50.0 to 70.0 MiB',
    'descriptors of 1 went from 9 to 10',
  ]


def test_a_pool_that_leaks_a_descriptor_is_not_flat(monkeypatch):
  leaked = []

  class Leaky:
    def __init__(self, workers):
      pass

    def __enter__(self):
      return self

    def __exit__(self, *_):
      pass

    def run(self, programs):
      leaked.append(os.open(os.devnull, os.O_RDONLY))
      return [ProgramResult('passed', 1.0, ()) for _ in programs]

  monkeypatch.setattr(bench_soak, 'ExecutionPool', Leaky)
  with pytest.raises(bench_soak.NotFlatError, match=f'of {os.getpid()} went'):
    bench_soak.soak([RIGHT] * 20, 20, workers=1)
  for descriptor in leaked:
    os.close(descriptor)


def test_usage_covers_what_this_process_has_started():
  child = subprocess.Popen(['sleep', '60'])
  try:
    usage = bench_soak.usage()
  finally:
    child.kill()
    child.wait()
  assert usage[child.pid].memory_mb > 0
  assert usage[os.getpid()].memory_mb > usage[child.pid].memory_mb
  assert (usage[os.getpid()].descriptors or 0) > 0
