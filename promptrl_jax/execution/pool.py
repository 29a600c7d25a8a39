"""The trainer's end: hands programs to worker processes and collects verdicts.

  trainer --exec--> worker: judge --fork, before any program--> zygote
                                                                 |
                                     one candidate per program <-+ fork

Nothing is ever forked from the trainer, in which JAX has threads. A worker ends
with the trainer, however the trainer ends, and takes all it started along.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import queue
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable
from typing import Any

from promptrl_jax.execution import wire
from promptrl_jax.execution.limits import Limits
from promptrl_jax.execution.program import Program
from promptrl_jax.execution.program import ProgramResult
from promptrl_jax.execution.program import TestResult

# Without the project on its path: neither its __init__ files nor anything
# outside of this room is run in a worker.
_BOOT = """
import sys, types
root = sys.argv.pop(1)
for name, path in (
    ('promptrl_jax', root), ('promptrl_jax.execution', root + '/execution')):
  sys.modules[name] = types.ModuleType(name)
  sys.modules[name].__path__ = [path]
from promptrl_jax.execution import worker
worker.main()
"""
_START_S = 60.0
_STOP_S = 5.0
# A judge that computes for this long on one program is stuck in a comparison.
_JUDGE_CPU_S = 10.0
_SCRATCH = 'promptrl-execution-'


class _LostError(Exception):
  """The worker is gone or stuck."""


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
        shutil.rmtree(self._scratch, ignore_errors=True)

  def _start(self) -> None:
    with self._lock:
      if self._closed.is_set():
        raise RuntimeError('the pool is closed; make a new one')
      if self._threads:
        return
      self._scratch = _make_scratch()
      # A worker dies with the thread that started it, so each has a thread
      # that lives as long as the pool.
      for _ in range(self._workers):
        thread = threading.Thread(target=self._serve, daemon=True)
        thread.start()
        self._threads.append(thread)

  def _serve(self) -> None:
    """Feeds one worker; a lost one is replaced, and its program tried again."""
    worker: _Worker | None = None
    while (job := self._jobs.get()) is not None:
      if job.batch.cancelled or self._closed.is_set():
        continue
      limits = job.program.limits or self._limits
      outcome: ProgramResult | Exception | None = None
      for _ in range(2):
        try:
          worker = worker or _Worker(self._scratch, self._closed)
          outcome = worker.judge(job.program, limits)
          break
        except _LostError as error:
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


class _Worker:
  """A worker process.

  Raises:
    RuntimeError: it does not start.
  """

  def __init__(self, scratch: str, closed: threading.Event):
    if not sys.executable:
      raise RuntimeError('sys.executable is empty: no interpreter to run')
    self._closed = closed
    self._folder = tempfile.mkdtemp(dir=scratch)
    self._channel, theirs = socket.socketpair()
    package = pathlib.Path(__file__).parents[1]
    descriptor = theirs.fileno()
    environment = {'LC_ALL': 'C.UTF-8', 'PYTHONHASHSEED': '0'}
    if 'LD_LIBRARY_PATH' in os.environ:  # Some need it to find libpython.
      environment['LD_LIBRARY_PATH'] = os.environ['LD_LIBRARY_PATH']
    with theirs:
      # Not -I, which ignores PYTHONHASHSEED: the order of a set would differ
      # from worker to worker.
      self._process = subprocess.Popen(
        [
          *(sys.executable, '-s', '-S', '-P', '-B', '-c', _BOOT, str(package)),
          *(str(descriptor), str(os.getpid()), self._folder),
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        pass_fds=[descriptor],
        env=environment,
        cwd=self._folder,
        start_new_session=True,
      )
    try:
      self._receive(_START_S)
    except _LostError as error:
      self.stop()
      raise RuntimeError(
        f'it did not start: {error}; exit status {self._process.returncode} of {sys.executable}'
      ) from None

  def judge(self, program: Program, limits: Limits) -> ProgramResult:
    """Has one program judged.

    Raises:
      _LostError: the worker did not get to a verdict; `stop` it.
    """
    request = {
      'code': program.code,
      'tests': program.tests,
      'setup': program.setup,
      'entry_point': program.entry_point,
      'limits': dataclasses.asdict(limits),
    }
    try:
      wire.send(self._channel, request)
    except OSError as error:
      raise _LostError(f'the worker is gone: {error}') from None
    reply = self._receive(2 * limits.wall_s + 30.0)
    tests = tuple(TestResult(*verdict) for verdict in reply['tests'])
    passed = sum(test.status == 'passed' for test in tests)
    return ProgramResult(
      status=reply['status'],
      score=passed / len(tests),
      tests=tests,
      cpu_s=reply['cpu_s'],
      wall_s=reply['wall_s'],
      message=reply['message'],
    )

  def stop(self) -> None:
    """Ends the worker and all it started."""
    with contextlib.suppress(OSError):
      self._channel.shutdown(socket.SHUT_WR)  # It ends when it reads this.
    if not self._is_gone():
      self._process.kill()  # The zygote ends when the judge has.
      if not self._is_gone():
        with contextlib.suppress(ProcessLookupError):
          os.killpg(self._process.pid, signal.SIGKILL)
    self._process.wait()
    self._channel.close()
    shutil.rmtree(self._folder, ignore_errors=True)

  def _is_gone(self) -> bool:
    """Waits for judge and zygote to end; both hold the channel open."""
    self._channel.settimeout(_STOP_S)
    try:
      while self._channel.recv(1 << 16):
        pass
    except TimeoutError:
      return False
    except OSError:
      return True
    return True

  def _receive(self, timeout_s: float) -> Any:
    deadline = time.monotonic() + timeout_s
    cpu_s = self._cpu_s()
    poller = select.poll()
    poller.register(self._channel, select.POLLIN)
    while not poller.poll(100):
      if self._closed.is_set():
        raise _LostError('the pool was closed')
      if self._cpu_s() - cpu_s > _JUDGE_CPU_S:
        self._process.kill()
        raise _LostError('the judge is stuck, probably in a comparison')
      if time.monotonic() > deadline:
        self._process.kill()
        raise _LostError(f'no answer from the worker in {timeout_s:g} s')
    try:
      return wire.receive(self._channel)
    except (EOFError, OSError):
      raise _LostError('the worker ended') from None

  def _cpu_s(self) -> float:
    try:  # The clock of another process, see clock_getcpuclockid(3).
      return time.clock_gettime((~self._process.pid << 3) | 2)
    except OSError:
      return 0.0


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


def _make_scratch() -> str:
  """A directory for the programs, in memory where possible."""
  shared = '/dev/shm'
  parent = shared if os.access(shared, os.W_OK) else tempfile.gettempdir()
  for left in pathlib.Path(parent).glob(f'{_SCRATCH}*-*'):
    # A trainer that was killed could not remove its own.
    pid = left.name.removeprefix(_SCRATCH).partition('-')[0]
    if pid.isdigit() and not os.path.exists(f'/proc/{pid}'):
      shutil.rmtree(left, ignore_errors=True)
  return tempfile.mkdtemp(prefix=f'{_SCRATCH}{os.getpid()}-', dir=parent)
