"""A pool that remembers results, for evaluations that repeat programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from promptrl_jax.execution.call import Call, CallResult
from promptrl_jax.execution.pool import ExecutionPool
from promptrl_jax.execution.program import Program, ProgramResult

# Statuses that load on the machine or bad luck may have contributed to.
_NOT_KEPT = ('infra_error', 'timeout')

_J = TypeVar('_J', Program, Call)
_R = TypeVar('_R', ProgramResult, CallResult)


class MemoPool:
  """Wraps a pool; equal programs with equal tests, or equal calls, run once.

  A result with a time-out is never kept, nor one without any verdict.
  """

  def __init__(self, pool: ExecutionPool):
    self._pool = pool
    self._verdicts: dict[Program, ProgramResult] = {}
    self._values: dict[Call, CallResult] = {}

  def run(self, programs: Sequence[Program]) -> list[ProgramResult]:
    """Results in the order of the programs."""
    return _remembered(self._verdicts, self._pool.run, programs)

  def evaluate(self, calls: Sequence[Call]) -> list[CallResult]:
    """Results in the order of the calls."""
    return _remembered(self._values, self._pool.evaluate, calls)


def _remembered(
  kept: dict[_J, _R],
  act: Callable[[Sequence[_J]], list[_R]],
  jobs: Sequence[_J],
) -> list[_R]:
  missing = [job for job in dict.fromkeys(jobs) if job not in kept]
  fresh = dict(zip(missing, act(missing), strict=True))
  kept |= {job: result for job, result in fresh.items() if _is_stable(result)}
  return [fresh[job] if job in fresh else kept[job] for job in jobs]


def _is_stable(result: ProgramResult | CallResult) -> bool:
  of_call = isinstance(result, CallResult)
  parts = result.expressions if of_call else result.tests
  statuses = {result.status, *(part.status for part in parts)}
  return statuses.isdisjoint(_NOT_KEPT)
