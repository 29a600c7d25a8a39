from __future__ import annotations

import os

import pytest

from promptrl_jax.files import write_atomically


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
