"""The canonical solutions of MBPP pass, and wrong ones do not."""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

from promptrl_jax.execution import ExecutionPool, Limits, Program
from promptrl_jax.prompts.entry_point import entry_point

DEFAULT = pathlib.Path(__file__).parents[2] / '../shared/data/mbpp/mbpp.jsonl'
PATH = pathlib.Path(os.environ.get('PROMPTRL_MBPP', DEFAULT))

pytestmark = [
  pytest.mark.slow,
  pytest.mark.skipif(
    not PATH.exists(), reason=f'no {PATH}; set PROMPTRL_MBPP to mbpp.jsonl'
  ),
]

# Task 123 takes about 2.5 CPU seconds; every other one less than 0.04.
LONG = {123: Limits(cpu_s=25.0)}


@pytest.fixture(scope='module')
def rows():
  return [json.loads(line) for line in PATH.read_text().splitlines()]


def program(row, code):
  return Program(
    code,
    row['test_list'] + row['challenge_test_list'],
    row['test_setup_code'],
    limits=LONG.get(row['task_id']),
  )


@pytest.fixture(params=[0, 2], ids=['quiet', 'busy'])
def load(request):
  """Runs endless loops beside the pool, a number of them for each core."""
  count = request.param * len(os.sched_getaffinity(0))
  command = [sys.executable, '-c', 'while True: pass']
  loops = [subprocess.Popen(command) for _ in range(count)]
  yield
  for loop in loops:
    loop.kill()
    loop.wait()


@pytest.mark.parametrize('workers', [1, 2, 8])
def test_every_canonical_solution_passes_every_test(rows, workers, load):
  with ExecutionPool(workers=workers) as pool:
    results = pool.run([program(row, row['code']) for row in rows])
  assert len(results) == 974
  failed = [
    (row['task_id'], result)
    for row, result in zip(rows, results, strict=True)
    if not result.passed or result.score != 1.0
  ]
  assert not failed


def test_the_solution_of_another_task_does_not_pass(rows):
  entry_points = [entry_point(row['test_list']) for row in rows]
  programs = []
  for i, row in enumerate(rows):
    other = rows[i - 1]['code']
    code = re.sub(rf'\b{entry_points[i - 1]}\b', entry_points[i], other)
    programs.append(program(row, code))
  with ExecutionPool(workers=2) as pool:
    results = pool.run(programs)
  passed = [
    row['task_id']
    for row, result in zip(rows, results, strict=True)
    if result.passed
  ]
  # Tasks 728 and 729 are the same in other words.
  assert passed == [729]
