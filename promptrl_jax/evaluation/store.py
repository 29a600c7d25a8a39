"""The cells of a comparison on disk, one file each, so that none is lost.

  W/cells/visible1/ppo_8.csv        the results of a cell, problem by problem
  W/cells/visible1/ppo_8.jsonl.gz   its trace, a row per step

A cell is complete if its CSV exists: it is written last.
"""

from __future__ import annotations

import gzip
import json
import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from promptrl_jax.evaluation.cells import Cell, read_csv, write_csv
from promptrl_jax.files import write_atomically

_LEVEL = 3  # of gzip: a trace becomes a tenth of its size in no time
_PART = 2**20  # bytes of a trace that are in memory at once


class CellStore:
  """Cells in a folder, by protocol, strategy and budget."""

  def __init__(self, folder: pathlib.Path):
    self._folder = folder

  def read(self, protocol: str, strategy: str, budget: int) -> Cell | None:
    """Returns a cell, or None if it is not complete."""
    path = self._path(protocol, strategy, budget).with_suffix('.csv')
    if not path.exists():
      return None
    (cell,) = read_csv(path)
    return cell

  def write(self, cell: Cell, trace: Iterable[Mapping[str, Any]]) -> None:
    """Writes a cell and its trace; a killed process leaves neither or both."""
    path = self._path(cell.protocol, cell.strategy, cell.budget)
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ''.join(f'{json.dumps(row)}\n' for row in trace)
    # No time in the header: equal cells are equal files.
    packed = gzip.compress(lines.encode(), _LEVEL, mtime=0)
    write_atomically(path.with_suffix('.jsonl.gz'), packed)
    write_csv(path.with_suffix('.csv'), [cell])

  def trace(self, cells: Sequence[Cell]) -> Iterator[bytes]:
    """Yields the traces of cells, JSON lines in their order, in parts."""
    for cell in cells:
      path = self._path(cell.protocol, cell.strategy, cell.budget)
      with gzip.open(path.with_suffix('.jsonl.gz')) as file:
        yield from iter(lambda file=file: file.read(_PART), b'')

  def rows(
    self, cells: Sequence[Cell], action: str
  ) -> Iterator[Mapping[str, Any]]:
    """Yields the trace rows of one action, and reads no other."""
    sign = json.dumps({'action': action})[1:-1].encode()
    for cell in cells:
      path = self._path(cell.protocol, cell.strategy, cell.budget)
      with gzip.open(path.with_suffix('.jsonl.gz')) as file:
        yield from (json.loads(line) for line in file if sign in line)

  def _path(self, protocol: str, strategy: str, budget: int) -> pathlib.Path:
    return self._folder / protocol / f'{strategy}_{budget}'
