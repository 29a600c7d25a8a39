"""Memory of the host: how much there is, and what a CPU takes as it is."""

from __future__ import annotations

import math
import os
import pathlib
import threading
from typing import Any

import numpy as np

_ALIGNMENT = 64  # bytes: what XLA wants of a buffer that it does not copy
_PIECE = 32 << 20  # bytes of a `Region` that are asked for at once
_LIMIT = pathlib.Path('/sys/fs/cgroup/memory.max')  # of a container


def total_bytes() -> int:
  """Memory of the machine, or of the container if that has less."""
  found = os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES')
  try:
    return min(found, int(_LIMIT.read_text()))
  except (OSError, ValueError):  # There is no limit, or the word `max`.
    return found


def empty(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
  """Returns an array that `jax.device_put(..., may_alias=True)` need not copy.

  Its content is arbitrary, as that of `numpy.empty`.
  """
  size = math.prod(shape) * np.dtype(dtype).itemsize
  memory = np.empty(size + _ALIGNMENT, np.uint8)
  start = -memory.ctypes.data % _ALIGNMENT
  return memory[start : start + size].view(dtype).reshape(shape)


class Region:
  """Memory of many arrays that live as long as each other.

  NumPy asks for pages of 2 MiB for arrays of 4 MiB or more, and few kernels of
  small models are so large. Side by side in large pieces they get such pages,
  too: to read them in order, as each step does, took an eighth less time.
  """

  def __init__(self) -> None:
    self._piece = np.empty(0, np.uint8)
    self._lock = threading.Lock()

  def empty(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Returns an array as `empty` does, in the memory of the region."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    aligned = -(-size // _ALIGNMENT) * _ALIGNMENT
    with self._lock:
      if aligned > len(self._piece):
        # What is not written to takes no memory.
        self._piece = empty((max(aligned, _PIECE),), np.uint8)
      array, self._piece = self._piece[:size], self._piece[aligned:]
    return array.view(dtype).reshape(shape)


def copy(to: np.ndarray, values: np.ndarray) -> None:
  """Copies values of the same shape and type, as integers of up to 8 bytes.

  NumPy copies bfloat16 number by number, under the lock of the interpreter.
  """
  size = to.dtype.itemsize
  if to.shape and all(x.strides[-1] == size for x in (to, values)):
    row = size * to.shape[-1]
    size = next(n for n in (8, 4, 2, 1) if row % n == 0)
  to.view(f'u{size}')[...] = values.view(f'u{size}')
