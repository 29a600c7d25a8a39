"""Whether processes are left that a test has started, directly or not."""

import os
import pathlib
import signal
import time


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
