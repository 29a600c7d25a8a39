"""Memory of the host: how much there is, and what a CPU takes as it is."""

from __future__ import annotations

import math
import os
import pathlib
from typing import Any

import numpy as np

_ALIGNMENT = 64  # bytes: what XLA wants of a buffer that it does not copy
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


def copy(to: np.ndarray, values: np.ndarray) -> None:
  """Copies values of the same shape and type, as integers of up to 8 bytes.

  NumPy copies bfloat16 number by number, under the lock of the interpreter.
  """
  size = to.dtype.itemsize
  if to.shape and all(x.strides[-1] == size for x in (to, values)):
    row = size * to.shape[-1]
    size = next(n for n in (8, 4, 2, 1) if row % n == 0)
  to.view(f'u{size}')[...] = values.view(f'u{size}')
