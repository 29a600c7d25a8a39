"""Runs experiments as processes of their own and kills some on the way."""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import pathlib
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

ROOT = pathlib.Path(__file__).parents[2]


class _Server:
  """The process of `fork_server.py`; see there for what is said."""

  def __init__(self):
    self._process = subprocess.Popen(
      [sys.executable, '-m', 'tests.experiments.fork_server'],
      cwd=ROOT,
      stdin=subprocess.PIPE,
      stdout=subprocess.PIPE,
    )
    atexit.register(self._stop)

  def start(self, command: list[str], stdout: str, stderr: str) -> int:
    """Starts one command; its process id, which leads a session."""
    order = {'command': command, 'stdout': stdout, 'stderr': stderr}
    self._process.stdin.write(json.dumps(order).encode() + b'\n')
    self._process.stdin.flush()
    return self._number(None)

  def wait(self, timeout: float) -> int:
    """The exit status of the command, negative for a signal.

    Raises:
      TimeoutError: it has not ended within `timeout` seconds.
    """
    return os.waitstatus_to_exitcode(self._number(timeout))

  def _stop(self) -> None:
    assert self._process.stdin is not None
    with contextlib.suppress(BrokenPipeError):
      self._process.stdin.close()  # It then ends by itself.
    try:
      self._process.wait(30.0)
    except subprocess.TimeoutExpired:
      self._process.kill()
      self._process.wait()

  def _number(self, timeout: float | None) -> int:
    ready, _, _ = select.select([self._process.stdout], [], [], timeout)
    if not ready:
      raise TimeoutError(f'not done within {timeout:g} s')
    line = self._process.stdout.readline()
    assert line, 'the fork server has ended'
    return int(line)


@functools.cache
def _server() -> _Server:
  return _Server()


def run(
  module: str, *flags: object, timeout: float = 600.0
) -> subprocess.CompletedProcess[str]:
  """Runs a module with flags to its end; most of the imports are done before.

  Raises:
    TimeoutError: it took longer than `timeout` seconds; it has been killed.
  """
  with tempfile.TemporaryDirectory() as folder:
    files = [pathlib.Path(folder, name) for name in ('stdout', 'stderr')]
    for file in files:
      file.touch()
    command = [module, *map(str, flags)]
    pid = _server().start(command, *map(str, files))
    try:
      status = _server().wait(timeout)
    except TimeoutError:
      os.killpg(pid, signal.SIGKILL)
      _server().wait(60.0)
      raise
    output = [file.read_text() for file in files]
  return subprocess.CompletedProcess(command, status, *output)


def run_fresh(
  module: str, *flags: object, timeout: float = 600.0
) -> subprocess.CompletedProcess[str]:
  """Runs `python -m module`, with hashes of its own, as a user does."""
  return subprocess.run(
    [sys.executable, '-m', module, *map(str, flags)],
    cwd=ROOT,
    capture_output=True,
    text=True,
    timeout=timeout,
    check=False,
  )


def kill_when(
  reached: Callable[[], bool],
  module: str,
  *flags: object,
  timeout: float = 500.0,
) -> None:
  """Runs a module and kills it and all that it has started.

  Args:
    reached: asked again and again; it is killed when the answer is yes.
    module: started as by `run`.
    *flags: of the module.
    timeout: in seconds.

  Raises:
    AssertionError: it ended by itself or was not there in time.
  """
  pid = _server().start([module, *map(str, flags)], os.devnull, os.devnull)
  deadline = time.monotonic() + timeout
  try:
    while not reached():
      assert time.monotonic() < deadline, f'not there within {timeout:g} s'
      assert os.path.exists(f'/proc/{pid}'), 'it ended before it was killed'
      time.sleep(0.02)
  finally:
    with contextlib.suppress(ProcessLookupError):
      os.killpg(pid, signal.SIGKILL)
    status = _server().wait(60.0)
  assert status == -signal.SIGKILL


def http_roles(url: str, retries: int, timeout_s: float) -> list[str]:
  """Flags by which coder and rewriter are the model `stub` of a server."""
  return [
    f'--config.{role}.{field}={value}'
    for role in ('coder', 'rewriter')
    for field, value in (
      ('backend', 'http'),
      ('http.base_url', url),
      ('model', 'stub'),
      ('http.max_retries', retries),
      ('http.timeout_s', timeout_s),
    )
  ]


def has_rows(path: pathlib.Path, count: int) -> bool:
  """Whether a file has at least `count` lines."""
  return path.exists() and len(path.read_text().splitlines()) >= count
