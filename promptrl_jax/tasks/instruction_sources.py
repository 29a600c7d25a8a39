"""Converts CSV, text, JSON lines or a hub data set into instruction files.

Columns are never guessed: every column of a source is mapped to a field, or
dropped by name.
"""

from __future__ import annotations

import csv
import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from promptrl_jax.tasks import instructions, json_lines
from promptrl_jax.tasks.json_lines import DataError

KINDS = ('csv', 'text', 'jsonl', 'hub')
LINE = 'line'  # The one column of a text file.
Row = tuple[str, Mapping[str, Any]]  # (location for errors, columns)


def read(
  kind: str, path: str, config: str = '', split: str = 'train'
) -> Iterator[Row]:
  """Reads the rows of a source.

  Args:
    kind: one of `KINDS`. A text file has one row for each line that is not
      blank, with the column `line`.
    path: a file, or the id of a data set on the hub.
    config, split: of a data set on the hub.

  Raises:
    DataError: the file or data set is missing, or a row cannot be read.
  """
  if kind not in KINDS:
    raise DataError(f'source {kind!r}: expected one of {", ".join(KINDS)}')
  if kind == 'hub':
    return read_hub(path, config, split)
  if not pathlib.Path(path).is_file():
    raise DataError(f'no {kind} file at {path}')
  readers = {'csv': _read_csv, 'text': _read_text, 'jsonl': json_lines.read}
  return readers[kind](path)


def convert(
  rows: Iterable[Row],
  columns: Mapping[str, str],
  constants: Mapping[str, str] | None = None,
  drop: Sequence[str] = (),
  labels: Sequence[str] = (),
) -> list[dict[str, Any]]:
  """Converts rows of `read` to the lines of an instruction file.

  Args:
    rows: the rows.
    columns: field -> column that holds it.
    constants: field -> text that is the same in every line.
    drop: columns to leave out.
    labels: label names, if the output column holds their indices.

  Raises:
    DataError: a field or column has no counterpart, or a line would not be a
      valid example; the message names the row.
  """
  constants = dict(constants or {})
  _check_fields(columns, constants)
  lines, named = [], []
  for where, row in rows:
    _check_columns(row, columns, drop, where)
    line = constants | {field: row[name] for field, name in columns.items()}
    if labels and 'output' in columns:
      line['output'] = _label(line['output'], labels, where)
    lines.append(line)
    named.append((where, line))
  if not lines:
    raise DataError('the source has no rows')
  instructions.group(named)  # Refuses what is no example.
  return lines


def _check_fields(
  columns: Mapping[str, str], constants: Mapping[str, str]
) -> None:
  for field in [*columns, *constants]:
    if field not in instructions.FIELDS:
      raise DataError(
        f'field {field!r}: expected {", ".join(instructions.FIELDS)}'
      )
  for field in columns.keys() & constants.keys():
    raise DataError(f'field {field!r} is both mapped and given as a constant')
  for field in ('instruction', 'output'):
    if field not in {*columns, *constants}:
      raise DataError(
        f'nothing says what field {field!r} is: map it to a column or give it '
        'as a constant'
      )


def _check_columns(
  row: Mapping[str, Any],
  columns: Mapping[str, str],
  drop: Sequence[str],
  where: str,
) -> None:
  have = ', '.join(map(str, row))
  for field, name in columns.items():
    if name not in row:
      raise DataError(
        f'{where}: no column {name!r} for field {field!r}; there are {have}'
      )
  for name in row:
    if name not in columns.values() and name not in drop:
      raise DataError(
        f'{where}: column {name!r} is neither mapped to a field nor dropped'
      )


def _label(value: Any, labels: Sequence[str], where: str) -> str:
  number = str(value)
  if not number.isdecimal() or int(number) >= len(labels):
    raise DataError(
      f'{where}: label {value!r}: expected a number from 0 to '
      f'{len(labels) - 1}, for {", ".join(labels)}'
    )
  return labels[int(number)]


def _read_csv(path: str) -> Iterator[Row]:
  with open(path, encoding='utf-8', newline='') as file:
    reader = csv.DictReader(file, strict=True)
    try:
      for row in reader:
        where = f'{path}:{reader.line_num}'
        if None in row or None in row.values():
          raise DataError(
            f'{where}: not as many values as the header has columns '
            f'({", ".join(reader.fieldnames or ())})'
          )
        yield where, row
    except csv.Error as error:
      raise DataError(f'{path}:{reader.line_num}: no CSV: {error}') from error


def _read_text(path: str) -> Iterator[Row]:
  text = pathlib.Path(path).read_text(encoding='utf-8')
  for number, line in enumerate(text.split('\n'), 1):
    if line.strip():
      yield f'{path}:{number}', {LINE: line.rstrip('\r')}


def read_hub(path: str, config: str, split: str) -> Iterator[Row]:
  """Reads one split of a data set: an id on the hub, or a local folder."""
  import datasets  # slow to import, and not needed for files

  try:
    rows = datasets.load_dataset(path, config or None, split=split)
  except Exception as error:  # the hub client raises many kinds when offline
    raise DataError(
      f'split {split!r} of {path} could not be loaded '
      f'({type(error).__name__}: {error}): give a folder with files of '
      'the same columns, or connect to the Hugging Face hub once so that it '
      'is cached'
    ) from error
  for number, row in enumerate(rows, 1):
    yield f'{path}:{split}:{number}', dict(row)
