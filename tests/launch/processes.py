"""Cells of shell scripts, and waits for what they do."""

import os
import pathlib
import signal
import time

from launch.cells import Cell

# In the script of a cell.
DONE = 'echo {} > "$0/results.json"'


def make(folder, script, name='cell'):
  """A cell of a shell script, in which $0 is the workdir."""
  workdir = folder / name
  return Cell(name, workdir, ('sh', '-c', script, str(workdir)))


def wait(launcher, cells, kinds=('done', 'failed', 'missing'), within=30.0):
  """Waits until all cells are in one of the states; returns them."""
  deadline = time.monotonic() + within
  while time.monotonic() < deadline:
    states = launcher.states(cells)
    if all(state.kind in kinds for state in states.values()):
      return states
    time.sleep(0.01)
  raise AssertionError(f'after {within} s: {states}')


def wait_for(path, within=30.0):
  deadline = time.monotonic() + within
  while not path.exists():
    assert time.monotonic() < deadline, f'no {path} after {within} s'
    time.sleep(0.01)


def is_alive(pid):
  try:
    state = pathlib.Path(f'/proc/{pid}/stat').read_text().split()[2]
  except OSError:
    return False
  return state != 'Z'


def assert_gone(pids, within=5.0):
  deadline = time.monotonic() + within
  while left := [pid for pid in pids if is_alive(pid)]:
    if time.monotonic() > deadline:
      for pid in left:
        os.kill(pid, signal.SIGKILL)
      raise AssertionError(f'left behind: {left} of {pids}')
    time.sleep(0.05)
