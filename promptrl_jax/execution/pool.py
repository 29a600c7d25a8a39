"""The trainer's end: hands programs to worker processes and collects verdicts.

  trainer --exec--> judge --exec--> zygote --fork--> one candidate per program

Nothing is ever forked from the trainer, in which JAX has threads. A worker ends
with the trainer, however the trainer ends, and takes all it started along.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import queue
import sys
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any

from promptrl_jax.execution import process, scratch
from promptrl_jax.execution.layers import Layers
from promptrl_jax.execution.limits import Limits
from promptrl_jax.execution.program import Program, ProgramResult, TestResult

_LOG = logging.getLogger(__name__)


class ExecutionPool:
  """Runs programs against their tests in `workers` worker processes.

  Workers start with the first program. Use it as a context manager, or call
  `close`. Several threads may use it at the same time.

  Args:
    workers: processes that run programs at the same time; None for one per
      core that this process may use. More than cores do not help.
    limits: of every program that has none of its own.
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
    """What programs run behind on this machine, probed by doing."""
    if self._layers is None:
      self._layers = process.probe()
    return self._layers

  def run(self, programs: Iterable[Program]) -> list[ProgramResult]:
    """Runs programs; blocks until all are judged.

    Equal programs in a batch are run once.

    Returns:
      One result per program, in order.

    Raises:
      RuntimeError: the pool is or gets closed, or no worker can be started.
    """
    futures = self.submit(programs)
    try:
      return [future.result() for future in futures]
    except BaseException:  # Drop what is queued, also after an interrupt.
      for future in futures:
        future.cancel()
      raise

  def submit(self, programs: Iterable[Program]) -> list[Future[ProgramResult]]:
    """Queues programs; returns at once.

    Equal programs in a call are run once and share the result. A program is
    run unless all futures that wait for it are cancelled before it starts.

    Returns:
      One future per program, in order. Each is done when its result is there,
      so that `concurrent.futures.as_completed` hands them out as they arrive.
      A program, however malformed, gets a result; a RuntimeError says that the
      pool was closed before, or that no worker can be started. Callbacks run
      in a thread of the pool and must not close it.

    Raises:
      RuntimeError: the pool is closed.
    """
    futures: list[Future[ProgramResult]] = []
    jobs: dict[Program, list[Future[ProgramResult]]] = {}
    for program in programs:
      future: Future[ProgramResult] = Future()
      futures.append(future)
      result = _without_running(program)
      if result is None:
        jobs.setdefault(program, []).append(future)
      else:
        future.set_result(result)
    with self._lock:  # Jobs come before the end that `close` queues, or never.
      self._start()
      for program, waiting in jobs.items():
        self._jobs.put(_Job(program, waiting))
    return futures

  def close(self) -> None:
    """Ends the workers and all they started. May be called twice.

    Futures that are not done get a RuntimeError.
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
    # A worker dies with the thread that started it, so each has a thread
    # that lives as long as the pool.
    for _ in range(self._workers):
      thread = threading.Thread(target=self._serve, daemon=True)
      thread.start()
      self._threads.append(thread)

  def _serve(self) -> None:
    """Settles jobs with one worker until the pool is closed, then the rest."""
    seat = _Seat(self._scratch, self._closed, self._check)
    while (job := self._jobs.get()) is not None:
      futures = [f for f in job.futures if f.set_running_or_notify_cancel()]
      if not futures:
        continue
      try:
        result = seat.judge(job.program, job.program.limits or self._limits)
      except Exception as error:  # Raised again where the future is read.
        for future in futures:
          future.set_exception(error)
      else:
        for future in futures:
          future.set_result(result)
    seat.stop()

  def _check(self, layers: Layers) -> None:
    """Raises `TooWeakError` if a worker confines its programs too little."""
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


class TooWeakError(RuntimeError):
  """The machine does not have the layers that the pool requires."""


class _Seat:
  """Holds one worker, which is started when needed and replaced when lost."""

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

  def judge(self, program: Program, limits: Limits) -> ProgramResult:
    """Has one program judged; tries again, once, with a fresh worker.

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
        return self._worker.judge(program, limits)
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
    return _infra_error(program, str(fault))

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
  program: Program
  futures: list[Future[ProgramResult]]


def _without_running(program: Any) -> ProgramResult | None:
  if not isinstance(program, Program):
    message = f'expected a Program, got {type(program).__name__}'
    return ProgramResult('refused', None, (), message=message)
  tests = tuple(TestResult('not_run') for _ in program.tests)
  if program.malformed:
    return ProgramResult('refused', None, tests, message=program.malformed)
  if not tests:
    return ProgramResult('refused', None, (), message='there are no tests')
  if not program.code.strip():
    return ProgramResult('no_code', 0.0, tests)
  return None


def _infra_error(program: Program, message: str) -> ProgramResult:
  tests = tuple(TestResult('not_run') for _ in program.tests)
  return ProgramResult('infra_error', None, tests, message=message)
