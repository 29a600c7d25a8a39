"""`touch WORKDIR/stop` ends a run where it can go on from; no flags here."""

from __future__ import annotations

import pathlib
from collections.abc import Iterable, Iterator
from typing import Any

import tqdm

_NAME = 'stop'


class Stopped(Exception):
  """Somebody asked for the end of the run."""


class StopFile:
  """The file that asks for the end; it is gone once the run has seen it."""

  def __init__(self, workdir: pathlib.Path):
    self._path = workdir / _NAME

  def check(self) -> None:
    """Raises Stopped if the file is there."""
    if self._path.exists():
      self.remove()
      raise Stopped(f'stopped by {self._path}: the same command goes on')

  def remove(self) -> None:
    """Removes the file if it is there."""
    self._path.unlink(missing_ok=True)

  def bar(self, items: Iterable[Any], **shown: Any) -> Iterator[Any]:
    """A progress bar, as `tqdm.tqdm`, that checks before each item."""
    for item in tqdm.tqdm(items, **shown):
      self.check()
      yield item
