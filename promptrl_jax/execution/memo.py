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
    return _remembered(self._verdicts, self._pool.run, programs, _is_stable)

  def evaluate(self, calls: Sequence[Call]) -> list[CallResult]:
    """Results in the order of the calls."""
    return _remembered(
      self._values, self._pool.evaluate, calls, _is_stable_call
    )


def _remembered(
  kept: dict[_J, _R],
  act: Callable[[Sequence[_J]], list[_R]],
  jobs: Sequence[_J],
  is_stable: Callable[[_R], bool],
) -> list[_R]:
  missing = [job for job in dict.fromkeys(jobs) if job not in kept]
  fresh = dict(zip(missing, act(missing), strict=True))
  kept |= {job: result for job, result in fresh.items() if is_stable(result)}
  return [fresh[job] if job in fresh else kept[job] for job in jobs]


def _is_stable(result: ProgramResult) -> bool:
  statuses = {result.status, *(test.status for test in result.tests)}
  return statuses.isdisjoint(_NOT_KEPT)


def _is_stable_call(result: CallResult) -> bool:
  statuses = {result.status, *(e.status for e in result.expressions)}
  return statuses.isdisjoint(_NOT_KEPT)
