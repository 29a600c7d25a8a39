"""Files with one JSON object on each line."""

from __future__ import annotations

import gzip
import json
import pathlib
import zlib
from collections.abc import Iterator
from typing import Any


class DataError(ValueError):
  """The data is missing or malformed; the message says where."""


def content(path: str | pathlib.Path) -> bytes:
  """Returns the bytes of a file, unpacked if its name ends in `.gz`.

  Raises:
    DataError: the file is not a whole gzip file.
  """
  data = pathlib.Path(path).read_bytes()
  if not str(path).endswith('.gz'):
    return data
  try:
    return gzip.decompress(data)
  except (OSError, EOFError, zlib.error) as error:
    raise DataError(f'{path}: no whole gzip file: {error}') from error


def read(path: str | pathlib.Path) -> Iterator[tuple[str, dict[str, Any]]]:
  """Yields `file:line` and the object of each line that is not blank.

  Raises:
    DataError: a line is no JSON object; names file and line.
  """
  # Not `splitlines`: JSON strings may hold U+2028 as it is.
  for number, line in enumerate(text(path).split('\n'), 1):
    if not line.strip():
      continue
    where = f'{path}:{number}'
    try:
      row = json.loads(line)
    except json.JSONDecodeError as error:
      raise DataError(f'{where}: not JSON: {error}') from error
    if not isinstance(row, dict):
      raise DataError(f'{where}: expected an object, got {type(row).__name__}')
    yield where, row


def text(path: str | pathlib.Path) -> str:
  """Returns the text of a file; DataError if it is not UTF-8."""
  data = content(path)
  try:
    return data.decode('utf-8')
  except UnicodeDecodeError as error:
    line = data.count(b'\n', 0, error.start) + 1
    raise DataError(f'{path}:{line}: no text in UTF-8: {error}') from error
