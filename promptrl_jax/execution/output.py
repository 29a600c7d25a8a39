"""Keeps the beginning of what a program writes to its standard output."""

from __future__ import annotations

import io
import sys
from typing import Any

MAX_BYTES = 10_000


class Recorder(io.RawIOBase):
  """A file that keeps the first bytes and drops the rest."""

  def __init__(self, size: int):
    self._size = size
    self._data = bytearray()
    self._cut = False

  def writable(self) -> bool:
    return True

  def write(self, data: Any) -> int:
    with memoryview(data) as view, view.cast('B') as written:
      room = self._size - len(self._data)
      self._data += written[:room]
      self._cut |= len(written) > room
      return len(written)

  def take(self) -> dict[str, Any]:
    """The fields of an answer: what came since the last call of this method."""
    text = self._data.decode('utf-8', 'replace')
    fields = {'output': text, 'output_is_cut': self._cut}
    self._data.clear()
    self._cut = False
    return fields


def record(size: int) -> Recorder:
  """Has `sys.stdout` write to a recorder of at most `size` bytes.

  The file descriptor 1 stays as it is. A program that takes `sys.stdout` apart
  changes what is said of its own output, and nothing else.
  """
  recorder = Recorder(size)
  sys.stdout = io.TextIOWrapper(
    recorder,  # pyright: ignore[reportArgumentType]
    encoding='utf-8',
    errors=sys.stdout.errors,
    write_through=True,
  )
  return recorder
