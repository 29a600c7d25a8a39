"""Of every test: two simulated devices, so that meshes are real, and a pool."""

from __future__ import annotations

from collections.abc import Iterator

import hypothesis
import jax
import pytest

from promptrl_jax.execution import ExecutionPool

jax.config.update('jax_num_cpu_devices', 2)
# How long an example takes says more of the machine than of the code.
hypothesis.settings.register_profile(
  'suite',
  deadline=None,
  suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile('suite')


@pytest.fixture(scope='session')
def pool() -> Iterator[ExecutionPool]:
  """A real pool; its workers start with the first program."""
  with ExecutionPool(workers=2) as pool:
    yield pool
