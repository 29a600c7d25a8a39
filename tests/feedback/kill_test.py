"""Eight writers at once, killed in the middle: nothing locked, lost, doubled."""

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
  log = folder / f'{writers[0]}.acknowledged'
  log.touch()
  arguments = [folder / 'feedback.sqlite', log, count, *writers]
  process = subprocess.Popen(
    [sys.executable, '-m', 'tests.feedback.hammer', *map(str, arguments)],
    cwd=ROOT,
    stderr=subprocess.PIPE,
    text=True,
  )
  return process, log


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
  'count', [40, pytest.param(1000, marks=pytest.mark.slow)]
)
def test_writers_that_are_killed_lose_and_double_nothing(
  tmp_path, layout, count
):
  path = tmp_path / 'feedback.sqlite'
  running = [begin(tmp_path, count, w) for w in LAYOUTS[layout]]
  logs = [log for _, log in running]
  every = {
    rating.id: rating.comment
    for writer in WRITERS
    for rating in hammer.ratings_of(writer, count)
  }
  deadline = time.monotonic() + 300
  while len(acknowledged(logs)) < len(every) * 0.4:
    assert time.monotonic() < deadline
    time.sleep(0.005)
  # Half of the processes die, and the others go on.
  killed = running[::2]
  for process, _ in killed:
    process.send_signal(signal.SIGKILL)
  for process, _ in killed:
    assert process.wait() == -signal.SIGKILL
  known = acknowledged(logs)
  kept = stored(path)
  assert 0.4 * len(every) <= len(known) < len(every)
  assert {every[id] for id in known} <= set(kept)

  # Who was killed sends everything again, as a page does that is reloaded.
  again = [begin(tmp_path, count, w) for w in LAYOUTS[layout][::2]]
  for process, _ in [*again, *running[1::2]]:
    _, errors = process.communicate(timeout=300)
    assert (process.returncode, errors) == (0, '')
  assert set(acknowledged(logs)) == every.keys()
  assert collections.Counter(stored(path)) == dict.fromkeys(every.values(), 1)
  with Store.open(path) as store:
    assert [len(store.events(f'answer to {w}')) for w in WRITERS] == [count] * 8
