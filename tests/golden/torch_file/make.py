"""Writes `pytorch_model.bin` beside it: a small tensor of every kind.

Needs torch, which the tests that read it do not:

  python -m tests.golden.torch_file.make
"""

from __future__ import annotations

import pathlib

import ml_dtypes
import numpy as np

PATH = pathlib.Path(__file__).parent / 'pytorch_model.bin'


def tensors() -> dict[str, np.ndarray]:
  """What the file holds."""
  grid = np.arange(24, dtype=np.float32).reshape(2, 3, 4) / 7
  return {
    'float32': grid,
    'transposed': grid.transpose(2, 0, 1),  # Shares the storage of float32.
    'part': grid[1, 1:, ::2],  # And so does this, from its middle on.
    'expanded': np.broadcast_to(grid[0, 0, :1], (3, 5)),
    'float16': (grid[0] - 1).astype(np.float16),
    'bfloat16': (grid[0] * 100).astype(ml_dtypes.bfloat16),
    'float64': np.array([1 / 3, -np.inf]),
    'int64': np.array([[-(2**62), 5]]),
    'int32': np.array([2**31 - 1, -1], np.int32),
    'int16': np.array([-300], np.int16),
    'int8': np.array([-7, 7], np.int8),
    'uint8': np.array([0, 255], np.uint8),
    'bool': np.array([True, False, True]),
    'scalar': np.array(2.5, np.float32),
    'empty': np.zeros((0, 3), np.float32),
  }


def as_torch():
  """The same, as views of the storages they share."""
  import torch

  made = {}
  for name, value in tensors().items():
    if value.dtype == ml_dtypes.bfloat16:
      made[name] = torch.tensor(value.astype(np.float32)).bfloat16()
    else:
      made[name] = torch.tensor(value)
  grid = made['float32']
  made['transposed'] = grid.permute(2, 0, 1)
  made['part'] = grid[1, 1:, ::2]
  made['expanded'] = grid[0, 0, :1].expand(3, 5)
  return made


def main() -> None:
  import torch

  torch.save(as_torch(), PATH)


if __name__ == '__main__':
  main()
