"""The trainer's end: sends programs to worker processes, collects the results.

Nothing is ever forked from the trainer, in which JAX has threads. A worker ends
with the trainer, however the trainer ends, and ends everything it started.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import queue
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from promptrl_jax.execution import process, scratch
from promptrl_jax.execution.call import Call, CallResult, ExpressionResult
from promptrl_jax.execution.layers import Layers
from promptrl_jax.execution.limits import Limits
from promptrl_jax.execution.program import Program, ProgramResult, TestResult

_LOG = logging.getLogger(__name__)
_J = TypeVar('_J', Program, Call)
_R = TypeVar('_R', ProgramResult, CallResult)


class ExecutionPool:
  """Runs programs in `workers` worker processes.

  Workers start with the first program. Use the pool as a context manager, or
  call `close`. Several threads may use it at the same time.

  Args:
    workers: processes that run programs at the same time; None for one per
      core that this process may use. More than cores do not help.
    limits: apply to every program that does not bring its own.
    allow_weak: run programs even where the machine cannot confine them (see
      `Layers.missing`), with a warning. For programs that you trust.
  """

  def __init__(
    self,
    workers: int | None = None,
    limits: Limits | None = None,
    allow_weak: bool = False,
  ):
    if sys.platform != 'linux':
      raise RuntimeError(f'running programs needs Linux, not {sys.platform}')
    if workers is None:
      workers = len(os.sched_getaffinity(0))
    if workers < 1:
      raise ValueError(f'workers must be at least 1, got {workers}')
    self._workers = workers
    self._limits = limits or Limits()
    self._allow_weak = allow_weak
    self._layers: Layers | None = None
    self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
    self._threads: list[threading.Thread] = []
    self._scratch = ''
    self._lock = threading.Lock()
    self._closed = threading.Event()

  def __enter__(self) -> ExecutionPool:
    return self

  def __exit__(self, *_: object) -> None:
    self.close()

  @property
  def layers(self) -> Layers:
    """The isolation layers of this machine, found by trying each of them."""
    if self._layers is None:
      self._layers = process.probe()
    return self._layers

  def run(self, programs: Iterable[Program]) -> list[ProgramResult]:
    """Runs programs against their tests; one result per program, in order.

    Raises:
      RuntimeError: the pool is or gets closed, or no worker can be started.
    """
    return _results(self.submit(programs))

  def submit(self, programs: Iterable[Program]) -> list[Future[ProgramResult]]:
    """Queues programs; returns at once.

    Equal programs in one batch are run once and share the result. A program is
    run unless all futures that wait for it are cancelled before it starts.

    Returns:
      One future per program, in order. Every program gets a result, however
      malformed it is; a future raises RuntimeError if the pool was closed
      before the program ran, or if no worker can be started. Callbacks run in a
      thread of the pool and must not close it.

    Raises:
      RuntimeError: the pool is closed.
    """
    judge = process.WorkerProcess.judge
    return self._queue(programs, _without_running, judge)

  def evaluate(self, calls: Iterable[Call]) -> list[CallResult]:
    """Evaluates expressions after programs; one result per call, in order.

    Raises:
      RuntimeError: the pool is or gets closed, or no worker can be started.
    """
    return _results(self.submit_calls(calls))

  def submit_calls(self, calls: Iterable[Call]) -> list[Future[CallResult]]:
    """Queues calls and returns at once, as `submit` does for programs."""
    evaluate = process.WorkerProcess.evaluate
    return self._queue(calls, _without_evaluating, evaluate)

  def _queue(
    self,
    jobs: Iterable[_J],
    shortcut: Callable[[_J], _R | None],
    act: Callable[[process.WorkerProcess, _J, Limits], _R],
  ) -> list[Future[_R]]:
    """Queues jobs; `shortcut` has the result of one that needs no worker."""
    futures: list[Future[_R]] = []
    waiting: dict[_J, list[Future[_R]]] = {}
    for job in jobs:
      future: Future[_R] = Future()
      futures.append(future)
      result = shortcut(job)
      if result is None:
        waiting.setdefault(job, []).append(future)
      else:
        future.set_result(result)
    with self._lock:  # Jobs come before the end that `close` queues, or never.
      self._start()
      for job, of_job in waiting.items():
        self._jobs.put(_Job(job, act, of_job))
    return futures

  def close(self) -> None:
    """Ends the workers and everything they started. May be called twice.

    Futures that are not done raise RuntimeError.
    """
    with self._lock:
      if not self._closed.is_set():
        self._closed.set()
        for _ in self._threads:
          self._jobs.put(None)
    for thread in self._threads:  # Unlocked: a callback may want to submit.
      thread.join()
    if self._scratch:
      scratch.remove(self._scratch)

  def _start(self) -> None:
    if self._closed.is_set():
      raise RuntimeError('the pool is closed; make a new one')
    if self._threads:
      return
    self._scratch = scratch.make()
    # A worker process dies with the thread that started it, so each worker
    # has a thread that lives as long as the pool.
    for _ in range(self._workers):
      thread = threading.Thread(target=self._serve, daemon=True)
      thread.start()
      self._threads.append(thread)

  def _serve(self) -> None:
    """Completes jobs with one worker; fails those left when the pool closes."""
    handle = _WorkerHandle(self._scratch, self._closed, self._check)
    while (job := self._jobs.get()) is not None:
      futures = [f for f in job.futures if f.set_running_or_notify_cancel()]
      if not futures:
        continue
      try:
        result = handle.carry_out(job, job.job.limits or self._limits)
      except Exception as error:  # Raised again where the future is read.
        for future in futures:
          future.set_exception(error)
      else:
        for future in futures:
          future.set_result(result)
    handle.stop()

  def _check(self, layers: Layers) -> None:
    """Raises `TooWeakError` if a worker lacks required isolation layers."""
    first, self._layers = self._layers is None, layers
    if first:
      _LOG.info('programs run behind: %s', layers.describe())
    if not layers.missing():
      return
    text = (
      f'programs cannot be confined here: no {", no ".join(layers.missing())}. '
      f'There is: {layers.describe()}.'
    )
    if not self._allow_weak:
      raise TooWeakError(
        f'{text} Use a machine or container that allows seccomp and Landlock '
        '(Linux 5.13 or later) or namespaces, or allow_weak=True for programs '
        'that you trust'
      )
    if first:
      _LOG.warning('%s They are run all the same: allow_weak=True', text)


class SystemFailure(RuntimeError):
  """The system failed where a result was due; no score is made up for it."""


class TooWeakError(RuntimeError):
  """The machine lacks isolation layers that the pool requires."""


class _WorkerHandle:
  """Owns one worker: starts it when it is needed, replaces it when it is lost.

  `check` raises `TooWeakError` if the layers of a new worker do not suffice.
  """

  def __init__(
    self,
    folder: str,
    closed: threading.Event,
    check: Callable[[Layers], None],
  ):
    self._folder = folder
    self._closed = closed
    self._check = check
    self._worker: process.WorkerProcess | None = None

  def carry_out(self, job: _Job, limits: Limits) -> ProgramResult | CallResult:
    """Has one job done; tries again, once, with a fresh worker.

    Raises:
      RuntimeError: the pool is closed, or no worker can be started.
    """
    fault: Exception | None = None
    started = False
    for _ in range(2):
      self._check_open()
      try:
        if self._worker is None:
          self._worker = process.WorkerProcess(self._folder, self._closed)
          self._check(self._worker.layers)
        return job.act(self._worker, job.job, limits)
      except TooWeakError:
        self.stop()
        raise
      except Exception as error:
        fault = error
      started = self._worker is not None
      self.stop()
    self._check_open()
    if not started:
      raise RuntimeError(f'a worker failed: {fault}') from fault
    return _infra_error(job.job, str(fault))

  def _check_open(self) -> None:
    if self._closed.is_set():
      raise RuntimeError('the pool was closed before the program was judged')

  def stop(self) -> None:
    """Ends the worker, if there is one."""
    worker, self._worker = self._worker, None
    if worker is not None:
      worker.stop()


@dataclasses.dataclass(frozen=True)
class _Job:
  """A program or call, how a worker does it, and who waits for the result."""

  job: Program | Call
  act: Callable[[process.WorkerProcess, Any, Limits], Any]
  futures: list[Future[Any]]


def _results(futures: Sequence[Future[_R]]) -> list[_R]:
  """Waits for all results."""
  try:
    return [future.result() for future in futures]
  except BaseException:  # Drop what is queued, also after an interrupt.
    for future in futures:
      future.cancel()
    raise


def _without_running(program: Any) -> ProgramResult | None:
  if not isinstance(program, Program):
    message = f'expected a Program, got {type(program).__name__}'
    return ProgramResult('refused', None, (), message=message)
  message = program.malformed
  if not message and not program.tests:
    message = (
      'there are no tests, so there is nothing to judge by; '
      'ExecutionPool.evaluate gives values and output without tests'
    )
  if message:
    return ProgramResult('refused', None, _not_run(program), message=message)
  if not program.code.strip():
    return ProgramResult('no_code', 0.0, _not_run(program))
  return None


def _without_evaluating(call: Any) -> CallResult | None:
  if not isinstance(call, Call):
    message = f'expected a Call, got {type(call).__name__}'
    return CallResult('refused', (), message=message)
  message = call.malformed
  if not message and not call.expressions:
    message = 'there are no expressions; expected at least one to evaluate'
  if message:
    return CallResult('refused', _not_run(call), message=message)
  return None


def _infra_error(
  job: Program | Call, message: str
) -> ProgramResult | CallResult:
  if isinstance(job, Call):
    return CallResult('infra_error', _not_run(job), message=message)
  return ProgramResult('infra_error', None, _not_run(job), message=message)


def _not_run(job: Program | Call) -> tuple[Any, ...]:
  if isinstance(job, Call):
    return tuple(ExpressionResult('not_run') for _ in job.expressions)
  return tuple(TestResult('not_run') for _ in job.tests)
