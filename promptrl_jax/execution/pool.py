"""The trainer's end: hands programs to worker processes and collects verdicts.

  trainer --exec--> worker: judge --fork, before any program--> zygote
                                                                 |
                                     one candidate per program <-+ fork

Nothing is ever forked from the trainer, in which JAX has threads. A worker ends
with the trainer, however the trainer ends, and takes all it started along.
"""

from __future__ import annotations

import dataclasses
import os
import queue
import sys
import threading
from collections.abc import Iterable
from typing import Any

from promptrl_jax.execution import process, scratch
from promptrl_jax.execution.limits import Limits
from promptrl_jax.execution.program import Program, ProgramResult, TestResult


class ExecutionPool:
  """Runs programs against their tests in `workers` worker processes.

  Workers start with the first `run`. Use it as a context manager, or call
  `close`. Several threads may call `run` at the same time.

  Args:
    workers: processes that run programs at the same time; None for one per
      core that this process may use. More than cores do not help.
    limits: of every program that has none of its own.
  """

  def __init__(self, workers: int | None = None, limits: Limits | None = None):
    if sys.platform != 'linux':
      raise RuntimeError(f'running programs needs Linux, not {sys.platform}')
    if workers is None:
      workers = len(os.sched_getaffinity(0))
    if workers < 1:
      raise ValueError(f'workers must be at least 1, got {workers}')
    self._workers = workers
    self._limits = limits or Limits()
    self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
    self._threads: list[threading.Thread] = []
    self._scratch = ''
    self._lock = threading.Lock()
    self._closed = threading.Event()

  def __enter__(self) -> ExecutionPool:
    return self

  def __exit__(self, *_: object) -> None:
    self.close()

  def run(self, programs: Iterable[Program]) -> list[ProgramResult]:
    """Runs programs; blocks until all are judged.

    Equal programs in a batch are run once.

    Returns:
      One result per program, in order.

    Raises:
      RuntimeError: the pool is or gets closed, or no worker can be started.
    """
    programs = list(programs)
    self._start()
    batch = _Batch()
    results = {program: _without_running(program) for program in programs}
    todo = [program for program, result in results.items() if result is None]
    try:
      for program in todo:
        self._jobs.put(_Job(program, batch))
      for _ in todo:
        program, result = batch.next(self._closed)
        results[program] = result
    finally:
      batch.cancelled = True  # If this was interrupted, drop what is queued.
    return [result for p in programs if (result := results[p]) is not None]

  def close(self) -> None:
    """Ends the workers and all they started. May be called twice."""
    with self._lock:
      self._closed.set()
      for _ in self._threads:
        self._jobs.put(None)
      for thread in self._threads:
        thread.join()
      self._threads = []
      if self._scratch:
        scratch.remove(self._scratch)

  def _start(self) -> None:
    with self._lock:
      if self._closed.is_set():
        raise RuntimeError('the pool is closed; make a new one')
      if self._threads:
        return
      self._scratch = scratch.make()
      # A worker dies with the thread that started it, so each has a thread
      # that lives as long as the pool.
      for _ in range(self._workers):
        thread = threading.Thread(target=self._serve, daemon=True)
        thread.start()
        self._threads.append(thread)

  def _serve(self) -> None:
    """Feeds one worker; a lost one is replaced, and its program tried again."""
    worker: process.WorkerProcess | None = None
    while (job := self._jobs.get()) is not None:
      if job.batch.cancelled or self._closed.is_set():
        continue
      limits = job.program.limits or self._limits
      outcome: ProgramResult | Exception | None = None
      for _ in range(2):
        try:
          worker = worker or process.WorkerProcess(self._scratch, self._closed)
          outcome = worker.judge(job.program, limits)
          break
        except process.LostError as error:
          outcome = _infra_error(job.program, str(error))
        except Exception as error:  # Raised by `run`, in the caller's thread.
          outcome = error
        if worker is not None:
          worker.stop()
          worker = None
      job.batch.done.put((job.program, outcome))
    if worker is not None:
      worker.stop()


class _Batch:
  """The programs of one call of `run`."""

  def __init__(self):
    self.cancelled = False
    self.done: queue.SimpleQueue[Any] = queue.SimpleQueue()

  def next(self, closed: threading.Event) -> tuple[Program, ProgramResult]:
    while True:
      try:
        program, outcome = self.done.get(timeout=0.5)
      except queue.Empty:
        if closed.is_set():
          raise RuntimeError('the pool was closed during a run') from None
        continue
      if isinstance(outcome, Exception):
        raise RuntimeError(f'a worker failed: {outcome}') from outcome
      return program, outcome


@dataclasses.dataclass(frozen=True)
class _Job:
  program: Program
  batch: _Batch


def _without_running(program: Program) -> ProgramResult | None:
  tests = tuple(TestResult('not_run') for _ in program.tests)
  if not tests:
    return ProgramResult('refused', None, (), message='there are no tests')
  if not program.code.strip():
    return ProgramResult('no_code', 0.0, tests)
  return None


def _infra_error(program: Program, message: str) -> ProgramResult:
  tests = tuple(TestResult('not_run') for _ in program.tests)
  return ProgramResult('infra_error', None, tests, message=message)
