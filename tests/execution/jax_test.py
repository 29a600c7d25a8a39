"""The pool in a process with JAX: it forks no process that has threads."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest

SCRIPT = """
import sys, warnings
warnings.simplefilter('error')
import jax, jax.numpy as jnp
from promptrl_jax.execution import ExecutionPool, Program
product = jax.jit(lambda x: x @ x)
x = jnp.ones((256, 256))
for i in range(int(sys.argv[1])):
  running = product(x)
  with ExecutionPool(workers=2) as pool:
    programs = [Program(f'f = lambda x: x + {j}', (f'assert f(1) == {1 + j}',))
                for j in range(4)]
    assert all(result.passed for result in pool.run(programs))
  running.block_until_ready()
"""


@pytest.mark.parametrize(
  'rounds', [3, pytest.param(50, marks=pytest.mark.slow)]
)
def test_pools_come_and_go_beside_jax(rounds):
  run = subprocess.run(
    [sys.executable, '-c', SCRIPT, str(rounds)],
    cwd=pathlib.Path(__file__).parents[2],
    capture_output=True,
    text=True,
    timeout=300,
    check=False,
  )
  assert (run.returncode, run.stderr) == (0, '')
