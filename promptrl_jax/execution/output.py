"""Records the beginning of the text that a program writes to `sys.stdout`."""

from __future__ import annotations

import io
import sys
from typing import Any

MAX_BYTES = 10_000


class Recorder(io.RawIOBase):
  """A file that keeps the first bytes and drops the rest."""

  def __init__(self):
    self._size = 0
    self._data = bytearray()
    self._is_cut = False

  def writable(self) -> bool:
    return True

  def write(self, data: Any) -> int:
    with memoryview(data) as view, view.cast('B') as written:
      room = self._size - len(self._data)
      self._data += written[:room]
      self._is_cut |= len(written) > room
      return len(written)

  def start(self, size: int) -> None:
    """Has `sys.stdout` write here, at most `size` bytes between two `take`s.

    File descriptor 1 is left alone. A program that takes `sys.stdout` apart
    changes the report of its own output, and nothing else.
    """
    self._size = size
    sys.stdout = _STDOUT

  def take(self) -> dict[str, Any]:
    """Fields for an answer: the output since the last call of this method."""
    if not self._data and not self._is_cut:
      return {}
    text = self._data.decode('utf-8', 'replace')
    fields = {'output': text, 'output_is_cut': self._is_cut}
    self._data.clear()
    self._is_cut = False
    return fields


# Built before the fork, which copies less than building it after each fork.
RECORDER = Recorder()
_STDOUT = io.TextIOWrapper(
  RECORDER,  # pyright: ignore[reportArgumentType]
  encoding='utf-8',
  errors='surrogateescape',  # As the interpreter does with LC_ALL=C.UTF-8.
  write_through=True,
)
