"""Files with one JSON object on each line."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterator
from typing import Any


class DataError(ValueError):
  """The data is missing or malformed; the message says where."""


def read(path: str | pathlib.Path) -> Iterator[tuple[str, dict[str, Any]]]:
  """Yields `file:line` and the object of each line that is not blank.

  Raises:
    DataError: a line is no JSON object; names file and line.
  """
  # Not `splitlines`: JSON strings may hold U+2028 as it is.
  lines = pathlib.Path(path).read_text(encoding='utf-8').split('\n')
  for number, line in enumerate(lines, 1):
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
