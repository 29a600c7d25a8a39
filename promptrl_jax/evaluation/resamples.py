"""What the resamples of a bootstrap draw: counts, the same for equal shapes.

(seeds of each array, units, seed) ──draw──> blocks of counts ──> `statistics`
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np


class Block(NamedTuple):
  """Resamples, a row each: how often each of what there is was drawn.

  Attributes:
    seeds: of each array, counts `[rows, seeds]`.
    units: counts `[rows, units]`.
  """

  seeds: tuple[np.ndarray, ...]
  units: np.ndarray


# A table has hundreds of intervals over the same problems.
@functools.lru_cache(maxsize=4)
def draw(
  seeds: tuple[int, ...], units: int, resamples: int, block: int, seed: int
) -> tuple[Block, ...]:
  """Draws seeds of each array and, independently, units, with replacement.

  Args:
    seeds: number of seeds of each array.
    units: number of families of problems, or of problems.
    resamples: number of rows of all blocks together.
    block: rows of a block; the last one may have fewer.
    seed: of the draws.
  """
  rng = np.random.default_rng(seed)
  blocks = []
  for start in range(0, resamples, block):
    rows = min(block, resamples - start)
    by_array = tuple(_count(rng, rows, size) for size in seeds)
    blocks.append(Block(by_array, _count(rng, rows, units)))
  return tuple(blocks)


def _count(rng: np.random.Generator, rows: int, size: int) -> np.ndarray:
  """Draws `size` of `size` in each row; returns the counts `[rows, size]`."""
  draws = rng.integers(0, size, size=(rows, size))
  draws += np.arange(rows)[:, None] * size
  counts = np.bincount(draws.ravel(), minlength=rows * size)
  small = np.int16 if size < 2**15 else np.int32  # They are kept.
  return counts.reshape(rows, size).astype(small)
