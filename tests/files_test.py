from __future__ import annotations

import fcntl
import os
import threading

import pytest

from promptrl_jax.files import held, is_held, write_atomically


def test_a_failed_write_keeps_the_old_file(tmp_path, monkeypatch):
  path = write_atomically(tmp_path / 'deep' / 'file', b'old')

  def fail(*_):
    raise OSError('disk full')

  monkeypatch.setattr(os, 'fsync', fail)
  with pytest.raises(OSError, match='disk full'):
    write_atomically(path, b'new')
  assert path.read_bytes() == b'old'
  assert list(path.parent.iterdir()) == [path]


def test_a_file_is_replaced(tmp_path):
  path = write_atomically(tmp_path / 'file', b'old and long')
  write_atomically(path, b'new')
  assert path.read_bytes() == b'new'


def test_parts_become_one_file_or_none(tmp_path):
  path = write_atomically(tmp_path / 'file', iter([b'a', b'b']))
  assert path.read_bytes() == b'ab'

  def ends_early():
    yield b'new'
    raise OSError('unreadable')

  with pytest.raises(OSError, match='unreadable'):
    write_atomically(path, ends_early())
  assert path.read_bytes() == b'ab'
  assert list(tmp_path.iterdir()) == [path]


def test_a_folder_is_held_by_one_and_looked_at_by_many(tmp_path):
  assert not is_held(tmp_path / 'none') and not is_held(tmp_path)
  with held(tmp_path / 'none'):
    assert is_held(tmp_path / 'none') and not is_held(tmp_path)
    with pytest.raises(ValueError, match='in use'), held(tmp_path / 'none'):
      pass
  assert not is_held(tmp_path / 'none')


def test_one_who_looks_does_not_keep_others_from_holding(tmp_path):
  handle = os.open(tmp_path, os.O_RDONLY)
  fcntl.flock(handle, fcntl.LOCK_SH)  # What `is_held` does for a moment.
  assert not is_held(tmp_path)
  threading.Timer(0.1, os.close, [handle]).start()
  with held(tmp_path):
    assert is_held(tmp_path)
