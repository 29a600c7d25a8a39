from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest

from promptrl_jax.execution import scratch


def test_a_tree_deeper_than_a_path_can_name_is_removed(tmp_path):
  top = tmp_path / 'top'
  top.mkdir()
  before = os.open('.', os.O_RDONLY)
  try:
    os.chdir(top)
    for _ in range(3000):
      os.mkdir('deep')
      os.chdir('deep')
    pathlib.Path('file').touch()
  finally:
    os.fchdir(before)
    os.close(before)
  scratch.remove(str(top))
  assert not top.exists()


def test_odd_things_are_removed_and_links_are_not_followed(tmp_path):
  top, kept = tmp_path / 'top', tmp_path / 'kept'
  kept.mkdir()
  (kept / 'file').touch()
  (top / 'a' / 'b').mkdir(parents=True)
  (top / 'link').symlink_to(kept)
  (top / 'a' / 'link').symlink_to(kept)
  (top / 'a' / 'broken').symlink_to('nothing')
  os.mkfifo(top / 'a' / 'b' / 'fifo')
  (top / 'a' / 'b').chmod(0)
  (top / 'a').chmod(0)
  scratch.remove(str(top))
  assert not top.exists()
  assert (kept / 'file').exists()


def test_removing_what_is_not_there_is_fine(tmp_path):
  scratch.remove(str(tmp_path / 'nothing'))


@pytest.fixture
def ended_pid():
  process = subprocess.Popen(['true'])
  process.wait()
  return process.pid


def test_what_an_ended_process_left_is_swept(ended_pid):
  mine = pathlib.Path(scratch.make())
  left = mine.parent / f'promptrl-execution-{ended_pid}-left'
  left.mkdir()
  (left / 'file').touch()
  other = pathlib.Path(scratch.make())
  assert not left.exists()
  assert mine.exists()
  scratch.remove(str(mine))
  scratch.remove(str(other))
  assert not mine.exists()


def test_what_is_locked_is_in_use_whatever_its_number_says(ended_pid):
  mine = pathlib.Path(scratch.make())
  left = mine.with_name(f'promptrl-execution-{ended_pid}-elsewhere')
  # Pools of other tests sweep, too: it has its name once it is locked.
  unnamed = mine.with_name(f'unnamed-{ended_pid}')
  unnamed.mkdir()
  hold = (
    'import fcntl, os, sys\n'
    'fcntl.flock(os.open(sys.argv[1], os.O_RDONLY), fcntl.LOCK_EX)\n'
    'print(flush=True)\n'
    'sys.stdin.read()'
  )
  holder = subprocess.Popen(
    [sys.executable, '-c', hold, str(unnamed)],
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
  )
  assert holder.stdout is not None
  holder.stdout.readline()
  unnamed.rename(left)
  scratch.remove(scratch.make())
  assert left.exists()
  holder.communicate()
  scratch.remove(scratch.make())
  assert not left.exists()
  scratch.remove(str(mine))


def test_hidden_and_deep_files_are_not_small(tmp_path):
  assert scratch.is_small(str(tmp_path))
  (tmp_path / 'a').write_bytes(bytes(2**20))
  assert scratch.is_small(str(tmp_path))
  inner = tmp_path / 'b'
  inner.mkdir()
  for number in range(16):
    (inner / str(number)).write_bytes(bytes(2**20))
  assert not scratch.is_small(str(tmp_path))


def test_a_link_that_looks_like_ours_is_not_followed(tmp_path):
  precious = tmp_path / 'precious'
  precious.mkdir()
  (precious / 'file').touch()
  folder = pathlib.Path(scratch.make())
  link = folder.with_name('promptrl-execution-999999999-x')
  link.symlink_to(precious)
  try:
    scratch.remove(str(folder))
    scratch.remove(scratch.make())
    assert (precious / 'file').exists()
  finally:
    link.unlink(missing_ok=True)
