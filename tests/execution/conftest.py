from __future__ import annotations

from collections.abc import Iterator

import pytest

from promptrl_jax.execution import ExecutionPool, Limits

LIMITS = Limits(cpu_s=0.25, idle_s=0.6, wall_s=20.0, memory_mb=256)


@pytest.fixture(scope='session')
def pool() -> Iterator[ExecutionPool]:
  with ExecutionPool(workers=2, limits=LIMITS) as pool:
    yield pool


@pytest.fixture
def judge(pool):
  """Returns a function that runs one program; tests are its arguments."""
  from promptrl_jax.execution import Program

  def run(code: str, *tests: str, **kwargs):
    return pool.run([Program(code, tests, **kwargs)])[0]

  return run
