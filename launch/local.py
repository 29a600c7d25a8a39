"""Runs cells as processes of this machine, a few at a time.

Each cell is a process group of its own. Its folder is held by this process
while it runs, so that two sweeps with the same command share the work. Ctrl-C
interrupts all groups, and `guard.sh` kills them if this process is killed.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import pathlib
import shlex
import signal
import subprocess
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import IO

from launch import cells as cells_lib
from launch.cells import Cell, State
from promptrl_jax import files

_GUARD = pathlib.Path(__file__).with_name('guard.sh')


class LocalLauncher:
  """Local processes; see `cells.Launcher`."""

  attached = True

  def __init__(self, parallel: int = 1, grace_s: float = 20.0):
    """Starts nothing yet.

    Args:
      parallel: most cells that run at a time.
      grace_s: seconds that an interrupted cell gets to save its state.
    """
    self._grace_s = grace_s
    self._threads = concurrent.futures.ThreadPoolExecutor(parallel, 'cell')
    self._futures: dict[str, concurrent.futures.Future[None]] = {}
    self._groups: dict[str, int] = {}  # process groups of cells that run
    self._cancelled: set[str] = set()
    self._lock = threading.Lock()
    self._guard: subprocess.Popen[str] | None = None
    # A shell has processes in the background ignore interrupts, and cells that
    # inherited this could not save their state when they are cancelled.
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
      signal.signal(signal.SIGINT, signal.default_int_handler)

  def submit(self, cells: Sequence[Cell]) -> None:
    for cell in cells:
      self._cancelled.discard(cell.name)
      self._futures[cell.name] = self._threads.submit(self._run, cell)

  def states(self, cells: Sequence[Cell]) -> dict[str, State]:
    return {cell.name: self._state(cell) for cell in cells}

  def cancel(self, cells: Sequence[Cell]) -> None:
    names = {cell.name for cell in cells}
    self._end({n: f for n, f in self._futures.items() if n in names})

  def close(self) -> None:
    """Ends all cells and the guard."""
    self._end(self._futures)
    self._threads.shutdown()
    if self._guard is not None:
      self._guard.communicate()

  def describe(self, cells: Sequence[Cell]) -> str:
    return ''.join(f'{shlex.join(cell.command)}\n' for cell in cells)

  def _state(self, cell: Cell) -> State:
    future = self._futures.get(cell.name)
    if files.is_held(cell.folder):
      return State('running')
    if future is not None and not future.done():
      return State('running' if future.running() else 'pending')
    if future is not None and not future.cancelled() and future.exception():
      return State('failed', str(future.exception()))
    return cells_lib.state_from_files(cell)

  def _run(self, cell: Cell) -> None:
    """Runs a cell to its end, unless another process does or has done so."""
    with contextlib.ExitStack() as stack:
      try:
        stack.enter_context(files.held(cell.folder))
      except ValueError:
        return
      if cell.results.is_file():
        return
      cells_lib.record(cell)
      with cell.log.open('ab') as log:
        try:
          process = self._start(cell, log)
        except OSError as error:
          log.write(f'{error}\n'.encode())
          return
        status = self._wait(cell, process)
        if status < 0:  # A process that is killed prints nothing.
          log.write(f'ended by {signal.Signals(-status).name}\n'.encode())

  def _start(self, cell: Cell, log: IO[bytes]) -> subprocess.Popen[bytes]:
    with self._lock:
      if cell.name in self._cancelled:
        raise OSError('cancelled before it started')
      process = cells_lib.start(cell.command, log)
      try:
        self._tell_guard(str(process.pid))
      except OSError:  # The guard was killed: nothing may run without it.
        signal_group(process.pid, signal.SIGKILL)
        process.wait()
        raise
      self._groups[cell.name] = process.pid
      return process

  def _wait(self, cell: Cell, process: subprocess.Popen[bytes]) -> int:
    # Until the process is reaped, the kernel gives its id to no other.
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    with self._lock:
      signal_group(process.pid, signal.SIGKILL)  # What the cell has left.
      del self._groups[cell.name]
      with contextlib.suppress(BrokenPipeError):
        self._tell_guard(f'-{process.pid}')
      return process.wait()

  def _end(self, futures: Mapping[str, concurrent.futures.Future]) -> None:
    for future in futures.values():
      future.cancel()
    try:
      self._signal(futures, signal.SIGINT)
      concurrent.futures.wait(futures.values(), self._grace_s)
    finally:  # A second interrupt ends the wait.
      self._signal(futures, signal.SIGKILL)
      concurrent.futures.wait(futures.values())

  def _signal(self, names: Iterable[str], number: signal.Signals) -> None:
    """Signals the cells that run, and keeps the others from starting."""
    with self._lock:
      self._cancelled.update(names)
      for name in names:
        if name in self._groups:
          signal_group(self._groups[name], number)

  def _tell_guard(self, line: str) -> None:
    if self._guard is None:
      self._guard = subprocess.Popen(
        [str(_GUARD)],
        stdin=subprocess.PIPE,
        text=True,
        start_new_session=True,  # No signal to this process reaches it.
      )
    assert self._guard.stdin is not None
    self._guard.stdin.write(f'{line}\n')
    self._guard.stdin.flush()


def signal_group(group: int, number: signal.Signals) -> None:
  """Sends a signal to all processes of a group, of which none may be left."""
  with contextlib.suppress(ProcessLookupError):
    os.killpg(group, number)
