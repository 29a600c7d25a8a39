"""Eight writers at once, some killed: nothing locked, lost or doubled."""

import collections
import pathlib
import signal
import sqlite3
import subprocess
import sys
import time

import pytest

from promptrl_jax.feedback.store import Store
from tests.feedback import hammer

ROOT = pathlib.Path(__file__).parents[2]
WRITERS = [f'writer{i}' for i in range(8)]
# 8 threads of one process, or 8 processes with one thread each.
LAYOUTS = {'threads': [WRITERS], 'processes': [[w] for w in WRITERS]}


def begin(folder, count, writers):
  """Starts a process; returns it with the file of what it got acknowledged."""
  log = folder / f'{writers[0]}.{time.monotonic_ns()}.acknowledged'
  arguments = [folder / 'feedback.sqlite', log, count, *writers]
  process = subprocess.Popen(
    [sys.executable, '-m', 'tests.feedback.hammer', *map(str, arguments)],
    cwd=ROOT,
    stdin=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
  )
  return process, log


def let_go(running, deadline):
  """Has processes begin at once, when all of them have the store open."""
  while not all(log.exists() for _, log in running):
    assert time.monotonic() < deadline
    time.sleep(0.005)
  for process, _ in running:
    process.stdin.write('\n')
    process.stdin.flush()


def stored(path):
  """Comments of all ratings that a fresh connection finds in the file."""
  database = sqlite3.connect(path)
  try:
    return [row[0] for row in database.execute('SELECT comment FROM events')]
  finally:
    database.close()


def acknowledged(logs):
  return [line for log in logs for line in log.read_text().splitlines()]


@pytest.mark.parametrize('layout', LAYOUTS)
@pytest.mark.parametrize(
  'count', [60, pytest.param(1000, marks=pytest.mark.slow)]
)
def test_writers_that_are_killed_lose_and_double_nothing(
  tmp_path, layout, count
):
  path = tmp_path / 'feedback.sqlite'
  deadline = time.monotonic() + 300
  every = {
    rating.id: rating.comment
    for writer in WRITERS
    for rating in hammer.ratings_of(writer, count)
  }
  running = [begin(tmp_path, count, w) for w in LAYOUTS[layout]]
  logs = [log for _, log in running]
  let_go(running, deadline)
  while len(acknowledged(logs)) < 0.4 * len(every):
    assert time.monotonic() < deadline
    time.sleep(0.005)
  # Stopped wherever they are, half of those that are not done die there.
  for process, _ in running:
    process.send_signal(signal.SIGSTOP)
  own = len(every) // len(running)
  unfinished = [
    i for i, log in enumerate(logs) if len(acknowledged([log])) < own
  ]
  killed = unfinished[::2]
  for i in killed:
    running[i][0].kill()
    assert running[i][0].wait() == -signal.SIGKILL
  for process, _ in running:
    process.send_signal(signal.SIGCONT)
  known = acknowledged(logs)
  assert {every[rating_id] for rating_id in known} <= set(stored(path))

  # Who was killed sends everything again, as a page does that is reloaded.
  again = [begin(tmp_path, count, LAYOUTS[layout][i]) for i in killed]
  logs += [log for _, log in again]
  let_go(again, deadline)
  survivors = [run for i, run in enumerate(running) if i not in killed]
  for process, _ in [*again, *survivors]:
    _, errors = process.communicate(timeout=300)
    assert (process.returncode, errors) == (0, '')
  assert killed and set(acknowledged(logs)) == every.keys()
  assert collections.Counter(stored(path)) == dict.fromkeys(every.values(), 1)
  with Store.open(path) as store:
    assert [len(store.events(f'answer to {w}')) for w in WRITERS] == [count] * 8
