"""A suite of programming problems that is generated once and then frozen.

The file ships with the package, so that every result names what it was measured
on by a hash; a test asserts that the generator still makes the same bytes.
"""

from __future__ import annotations

import functools
import gzip
import hashlib
import json
import pathlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from promptrl_jax.types import Task, UnitTests


class FrozenSuite:
  """The rows of one suite, in MBPP's schema."""

  def __init__(
    self,
    path: pathlib.Path,
    generate: Callable[[], Iterable[Mapping[str, Any]]],
    splits: Mapping[str, str],
  ):
    """Takes the file, what makes its rows, and the splits.

    Args:
      path: gzipped JSON lines; the name before the first dot is the suite's.
      generate: makes all rows in a fixed order.
      splits: name -> the rows' own name of the split.
    """
    self.path, self.splits = path, tuple(splits)
    self._generate, self._names = generate, splits

  def serialise(self) -> bytes:
    """Generates the suite anew, as JSON lines."""
    return ''.join(json.dumps(row) + '\n' for row in self._generate()).encode()

  @functools.cached_property
  def content(self) -> bytes:
    """The JSON lines of the file."""
    return gzip.decompress(self.path.read_bytes())

  @functools.cached_property
  def rows(self) -> tuple[Mapping[str, Any], ...]:
    """All rows of the file, in order."""
    return tuple(json.loads(line) for line in self.content.splitlines())

  @functools.cached_property
  def digest(self) -> str:
    """A short SHA-256 of the suite, which every result contains."""
    return hashlib.sha256(self.content).hexdigest()[:16]

  def load(self, split: str) -> tuple[Task, ...]:
    """Loads the tasks of one split.

    Raises:
      ValueError: there is no such split.
    """
    if split not in self._names:
      name = self.path.name.split('.')[0]
      raise ValueError(f'split {split!r}: {name} has {", ".join(self.splits)}')
    wanted = self._names[split]
    return tuple(to_task(row) for row in self.rows if row['split'] == wanted)

  def freeze(self) -> None:
    """Writes the file, without a time in the gzip header."""
    self.path.write_bytes(gzip.compress(self.serialise(), 9, mtime=0))
    print(f'{self.path.name}: {len(self.rows)} problems, {self.digest}')


def to_task(row: Mapping[str, Any]) -> Task:
  """Returns the task of one row."""
  signature = row['code'].split('\n', 1)[0]
  return Task(
    task_id=row['task_id'],
    statement=row['text'],
    checker=UnitTests(
      entry_point=signature.split('(')[0].removeprefix('def '),
      signature=signature,
      tests=tuple(row['test_list']),
      setup=row['test_setup_code'],
    ),
    reference=row['code'],
    split=row['split'],
    register=row['register'],
    canonical=row['canonical'],
    family=row['family'],
  )
