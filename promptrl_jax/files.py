"""Writes files atomically."""

from __future__ import annotations

import os
import pathlib
import uuid


def write_atomically(path: str | os.PathLike[str], data: bytes) -> pathlib.Path:
  """Writes `data` to `path` with a synced temporary file and a rename.

  Readers see either the old file or the complete new one, even if the process
  is killed while it writes. Missing parent folders are created.

  Returns:
    `path` as a `pathlib.Path`.
  """
  path = pathlib.Path(path)
  path.parent.mkdir(parents=True, exist_ok=True)
  temporary = path.with_name(f'.{path.name}.{uuid.uuid4().hex}.tmp')
  try:
    with open(temporary, 'xb') as file:
      file.write(data)
      file.flush()
      os.fsync(file.fileno())
    os.replace(temporary, path)
  except BaseException:
    temporary.unlink(missing_ok=True)
    raise
  # The rename is only durable once its folder is synced.
  folder = os.open(path.parent, os.O_RDONLY)
  try:
    os.fsync(folder)
  finally:
    os.close(folder)
  return path
