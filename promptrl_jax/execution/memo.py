"""A pool that remembers verdicts, for evaluations that repeat programs."""

from __future__ import annotations

from collections.abc import Sequence

from promptrl_jax.execution.pool import ExecutionPool
from promptrl_jax.execution.program import Program, ProgramResult

# Verdicts that load or bad luck may have had a hand in.
_NOT_KEPT = ('infra_error', 'timeout')


class MemoPool:
  """Wraps a pool; equal programs with equal tests are run once.

  A verdict with a time-out, or none at all, is never kept.
  """

  def __init__(self, pool: ExecutionPool):
    self._pool = pool
    self._results: dict[Program, ProgramResult] = {}

  def run(self, programs: Sequence[Program]) -> list[ProgramResult]:
    """Verdicts in the order of the programs."""
    missing = [p for p in dict.fromkeys(programs) if p not in self._results]
    fresh = dict(zip(missing, self._pool.run(missing), strict=True))
    self._results |= {p: r for p, r in fresh.items() if _is_stable(r)}
    return [fresh.get(p) or self._results[p] for p in programs]


def _is_stable(result: ProgramResult) -> bool:
  statuses = {result.status, *(test.status for test in result.tests)}
  return statuses.isdisjoint(_NOT_KEPT)
