"""The rows of a published benchmark: a local file, or the Hugging Face hub.

  file or hub --read--> (where, row), checked --to_task--> Task
              --digest--> version and hash of the data, for every result

Each benchmark (`mbpp.py`, `humaneval.py`, ...) names its fields; what is wrong
with a row is said here, once, with file and line.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import pathlib
import types
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from promptrl_jax.tasks import json_lines
from promptrl_jax.tasks.json_lines import DataError

Row = tuple[str, dict[str, Any]]  # (location for errors, fields)
Fields = Mapping[str, type | types.UnionType]


@dataclasses.dataclass(frozen=True)
class Benchmark:
  """Where a benchmark is published, and what its rows have.

  Attributes:
    name: as people write it.
    layouts: sets of required fields; a row has all of one set. The first is
      that of the published file.
    hub, part: data set and configuration on the Hugging Face hub.
    file: name of the published file, for messages.
    key: the field that names a task.
    is_file: the hub has the file itself, under its name.
    versions: first 16 digits of the SHA-256 of published files, unpacked ->
      the name of the version.
  """

  name: str
  layouts: tuple[Fields, ...]
  hub: str
  file: str
  part: str | None = None
  key: str = 'task_id'
  is_file: bool = False
  versions: Mapping[str, str] = dataclasses.field(default_factory=dict)

  def read(self, path: str = '') -> tuple[Row, ...]:
    """Returns all rows of a file, or of the hub if `path` is empty.

    A file has JSON lines or one JSON array, and may be packed (`.gz`).

    Raises:
      DataError: the data is missing, empty or malformed, a row is of another
        benchmark, or two rows have one task id; names file and line.
    """
    rows = self._checked(_of_file(self, path) if path else _of_hub(self))
    if not rows:
      raise DataError(
        f'{path or self.hub} is empty: expected one JSON object per line'
      )
    return rows

  def digest(self, path: str = '') -> str:
    """Returns version, if known, and short SHA-256 of the data.

    Results on different data are not compared.
    """
    sha = hashlib.sha256()
    if path:
      _check_file(self, path)
      sha.update(json_lines.content(path))
    else:
      for _, row in _of_hub(self):
        sha.update(json.dumps(row, sort_keys=True).encode())
    short = sha.hexdigest()[:16]
    version = self.versions.get(short)
    return f'{version} {short}' if version else short

  def _checked(self, rows: Iterable[Row]) -> tuple[Row, ...]:
    places: dict[Any, str] = {}
    checked = []
    for where, row in rows:
      self._check_fields(where, row)
      task_id = row[self.key]
      if task_id in places:
        raise DataError(
          f'{where}: {self.key} {task_id!r} is also that of {places[task_id]}: '
          'remove one of the two'
        )
      places[task_id] = where
      checked.append((where, row))
    return tuple(checked)

  def _check_fields(self, where: str, row: Mapping[str, Any]) -> None:
    wrong = [_first_wrong(row, fields) for fields in self.layouts]
    if None in wrong:
      return
    # The layout that a row is meant to have is the one it shares most with.
    shared = [len(fields.keys() & row.keys()) for fields in self.layouts]
    field, kind = wrong[shared.index(max(shared))] or ('', str)
    got = f'got {_shown(row[field])}' if field in row else 'there is none'
    other = _benchmark_of(row)
    hint = f'; the row looks like one of {other}' if other else ''
    raise DataError(
      f'{where}: field {field!r} must be {_name(kind)}, {got}: expected a '
      f'row of {self.name} ({self.file}){hint}'
    )


def _first_wrong(
  row: Mapping[str, Any], fields: Fields
) -> tuple[str, type | types.UnionType] | None:
  for field, kind in fields.items():
    value = row.get(field)
    if not isinstance(value, kind) or isinstance(value, bool):
      return field, kind
  return None


def _benchmark_of(row: Mapping[str, Any]) -> str:
  """The benchmark whose fields a row has; empty if it is none of these."""
  name = str(row.get('task_id'))
  if 'plus_input' in row:
    known = {'HumanEval/': 'humaneval_plus', 'Mbpp/': 'mbpp_plus'}
    return next((s for p, s in known.items() if name.startswith(p)), '')
  if 'test' in row:
    return 'mbpp_plus' if 'test_list' in row else 'humaneval'
  if 'test_list' in row:
    return 'mbpp' if 'text' in row else 'mbpp_sanitized'
  return ''


def _name(kind: type | types.UnionType) -> str:
  return kind.__name__ if isinstance(kind, type) else str(kind)


def _shown(value: Any) -> str:
  text = repr(value)
  return text if len(text) <= 60 else f'{text[:57]}...'


def _check_file(benchmark: Benchmark, path: str) -> None:
  if not pathlib.Path(path).is_file():
    raise DataError(
      f'no {benchmark.name} file at {path}: give {benchmark.file} with '
      f'--config.data.path, or leave it empty to download {benchmark.hub}'
    )


def _of_file(benchmark: Benchmark, path: str) -> Iterator[Row]:
  _check_file(benchmark, path)
  text = json_lines.text(path)
  if not text.lstrip().startswith('['):
    yield from json_lines.read(path)
    return
  try:
    rows = json.loads(text)
  except json.JSONDecodeError as error:
    raise DataError(f'{path}:{error.lineno}: not JSON: {error}') from error
  for number, row in enumerate(rows, 1):
    where = f'{path}: entry {number}'
    if not isinstance(row, dict):
      raise DataError(f'{where}: expected an object, got {type(row).__name__}')
    yield where, row


def _of_hub(benchmark: Benchmark) -> Iterator[Row]:
  for split, rows in _hub_splits(benchmark):
    for number, row in enumerate(rows, 1):
      yield f'{benchmark.hub}:{split}:{number}', dict(row)


def _hub_splits(benchmark: Benchmark) -> list[Any]:
  import datasets  # slow to import, and not needed with a local file

  hub, file = benchmark.hub, benchmark.file
  try:
    if benchmark.is_file:
      files = f'hf://datasets/{hub}/{file}'
      return list(datasets.load_dataset('json', data_files=files).items())
    return list(datasets.load_dataset(hub, benchmark.part).items())
  except Exception as error:  # the hub client raises many kinds when offline
    raise DataError(
      f'{hub} could not be loaded ({type(error).__name__}: {error}). '
      f'Either give a local copy with --config.data.path={file}, or connect '
      'to the Hugging Face hub once so that it is cached'
    ) from error
