"""Result files that are either the old version or the new one, never half."""

from __future__ import annotations

import os
import pathlib
import uuid


def write_atomically(path: str | os.PathLike[str], data: bytes) -> pathlib.Path:
  """Writes `data` to `path` by a synced temporary file and a rename.

  A reader, and a run that was cut off, finds the old file or the new one.
  Missing parent folders are made. Returns the path written.
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
  # The rename itself is only safe on disk once its folder is.
  folder = os.open(path.parent, os.O_RDONLY)
  try:
    os.fsync(folder)
  finally:
    os.close(folder)
  return path
