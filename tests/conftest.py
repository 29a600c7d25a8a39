"""Of every test: two simulated devices, so that meshes are real, and a pool."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import pytest

from promptrl_jax.execution import ExecutionPool

jax.config.update('jax_num_cpu_devices', 2)


@pytest.fixture(scope='session')
def pool() -> Iterator[ExecutionPool]:
  """A real pool; its workers start with the first program."""
  with ExecutionPool(workers=2) as pool:
    yield pool
