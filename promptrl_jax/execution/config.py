"""Settings of the execution pool, for experiments."""

from __future__ import annotations

import dataclasses

from promptrl_jax.execution.header import ImportHeaderPool
from promptrl_jax.execution.limits import Limits
from promptrl_jax.execution.pool import ExecutionPool


@dataclasses.dataclass(frozen=True)
class PoolConfig:
  """How programs are run; see `ExecutionPool` and `ImportHeaderPool`."""

  workers: int = 2
  limits: Limits = Limits()
  allow_weak: bool = False
  import_header: bool = False

  def open(self) -> ExecutionPool:
    """Returns a pool; use it in a `with` statement."""
    return ExecutionPool(self.workers, self.limits, self.allow_weak)

  def view(self, pool: ExecutionPool) -> ExecutionPool | ImportHeaderPool:
    """Returns the pool, or the one that adds the header."""
    return ImportHeaderPool(pool) if self.import_header else pool
