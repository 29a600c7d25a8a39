"""Writes files atomically, and keeps folders to one process."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pathlib
import uuid
from collections.abc import Iterator


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


@contextlib.contextmanager
def held(folder: pathlib.Path) -> Iterator[None]:
  """Keeps a folder, which is created, to this process while a block runs.

  A process that is killed holds nothing any more.

  Raises:
    ValueError: another process holds it.
  """
  folder.mkdir(parents=True, exist_ok=True)
  handle = os.open(folder, os.O_RDONLY)
  try:
    try:
      fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
      raise ValueError(
        f'{folder} is in use by another process: wait until it has ended, stop '
        'it, or use another --workdir'
      ) from None
    yield
  finally:
    os.close(handle)
