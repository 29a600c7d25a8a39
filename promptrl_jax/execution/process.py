"""The trainer's side of one worker process."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from typing import Any

from promptrl_jax.execution import kernel, wire
from promptrl_jax.execution import scratch as scratch_lib
from promptrl_jax.execution.call import Call, CallResult, ExpressionResult
from promptrl_jax.execution.layers import Layers
from promptrl_jax.execution.limits import Limits
from promptrl_jax.execution.program import Program, ProgramResult, TestResult

# The project is not on the path of a worker: neither its __init__ files nor
# anything outside of this package runs there.
_BOOT = """
import sys, types
root = sys.argv.pop(1)
for name, path in (
    ('promptrl_jax', root), ('promptrl_jax.execution', root + '/execution')):
  sys.modules[name] = types.ModuleType(name)
  sys.modules[name].__path__ = [path]
import importlib
importlib.import_module('promptrl_jax.execution.' + sys.argv.pop(1)).main()
"""
_START_S = 60.0
_STOP_S = 5.0
# A judge that computes for longer on one program is stuck in a comparison.
_JUDGE_CPU_S = 10.0
_SEND_S = 30.0


class LostError(Exception):
  """The worker is gone or stuck."""


def probe() -> Layers:
  """The isolation layers of this machine; starts one worker and ends it.

  Raises:
    RuntimeError: the worker does not start.
  """
  folder = scratch_lib.make()
  try:
    worker = WorkerProcess(folder, threading.Event())
    worker.stop()
    return worker.layers
  finally:
    scratch_lib.remove(folder)


class WorkerProcess:
  """A worker process; it dies with the thread that creates this object.

  Args:
    scratch: directory for its programs.
    closed: set once the pool is closed, which aborts a running job.

  Raises:
    RuntimeError: the worker does not start.
  """

  def __init__(self, scratch: str, closed: threading.Event):
    if not sys.executable:
      raise RuntimeError('sys.executable is empty: no interpreter to run')
    self._closed = closed
    self._folder = tempfile.mkdtemp(dir=scratch)
    self._channel, theirs = socket.socketpair()
    self._channel.settimeout(_SEND_S)
    package = pathlib.Path(__file__).parents[1]
    descriptor = theirs.fileno()
    environment = {'LC_ALL': 'C.UTF-8', 'PYTHONHASHSEED': '0'}
    if 'LD_LIBRARY_PATH' in os.environ:  # Some need it to find libpython.
      environment['LD_LIBRARY_PATH'] = os.environ['LD_LIBRARY_PATH']
    with theirs:
      # Not -I, which ignores PYTHONHASHSEED: the order of a set would differ
      # between workers.
      boot = [sys.executable, '-s', '-S', '-P', '-B', '-c', _BOOT, str(package)]
      self._process = subprocess.Popen(
        [
          *(*boot, 'worker', json.dumps(boot)),
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
      ready = self._receive(_START_S)
      self.layers = Layers(
        **{**ready, 'namespaces': tuple(ready['namespaces'])}
      )
    except LostError as error:
      self.stop()
      raise RuntimeError(
        f'{sys.executable} did not start: {error}, '
        f'exit status {self._process.returncode}'
      ) from None

  def judge(self, program: Program, limits: Limits) -> ProgramResult:
    """Runs one program against its tests.

    Raises:
      LostError: the worker did not get to a verdict; `stop` it.
    """
    reply = self._ask(
      program,
      limits,
      tests=program.tests,
      isolate_tests=bool(program.isolate_tests),
    )
    tests = tuple(TestResult(*verdict) for verdict in reply.pop('tests'))
    passed = sum(test.status == 'passed' for test in tests)
    return ProgramResult(score=passed / len(tests), tests=tests, **reply)

  def evaluate(self, call: Call, limits: Limits) -> CallResult:
    """Evaluates the expressions of one call.

    Raises:
      LostError: the worker did not get to an end; `stop` it.
    """
    reply = self._ask(call, limits, expressions=call.expressions)
    values = tuple(ExpressionResult(**e) for e in reply.pop('expressions'))
    return CallResult(expressions=values, **reply)

  def stop(self) -> None:
    """Ends the worker and everything it started."""
    with contextlib.suppress(OSError):
      self._channel.shutdown(socket.SHUT_WR)  # The worker ends at end of file.
    if not self._is_gone():
      self._process.kill()  # The zygote ends when the judge has.
      if not self._is_gone():
        with contextlib.suppress(ProcessLookupError):
          os.killpg(self._process.pid, signal.SIGKILL)
    self._process.wait()
    self._channel.close()
    scratch_lib.remove(self._folder)

  def _is_gone(self) -> bool:
    """Waits for judge and zygote to end; both keep the channel open."""
    self._channel.settimeout(_STOP_S)
    try:
      while self._channel.recv(1 << 16):
        pass
    except TimeoutError:
      return False
    except OSError:
      return True
    return True

  def _ask(
    self, job: Program | Call, limits: Limits, **questions: Any
  ) -> dict[str, Any]:
    request = {
      'code': job.code,
      'setup': job.setup,
      'entry_point': job.entry_point,
      'limits': vars(limits),
    }
    try:
      wire.send(self._channel, request | questions)
    except OSError as error:
      raise LostError(f'the worker is gone: {error}') from None
    return self._receive(2 * limits.wall_s + 30.0)

  def _receive(self, timeout_s: float) -> Any:
    deadline = time.monotonic() + timeout_s
    cpu_s = kernel.cpu_s(self._process.pid)
    poller = select.poll()
    poller.register(self._channel, select.POLLIN)
    while not poller.poll(100):
      if self._closed.is_set():
        raise LostError('the pool was closed')
      if kernel.cpu_s(self._process.pid) - cpu_s > _JUDGE_CPU_S:
        self._process.kill()
        raise LostError('the judge is stuck, probably in a comparison')
      if time.monotonic() > deadline:
        self._process.kill()
        raise LostError(f'no answer from the worker in {timeout_s:g} s')
    try:
      return wire.receive(self._channel)
    except (EOFError, OSError):
      raise LostError('the worker ended') from None
