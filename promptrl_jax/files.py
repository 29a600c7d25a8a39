"""Writes files atomically, keeps folders to one process, names the cache."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pathlib
import time
import uuid
from collections.abc import Iterable, Iterator

_CACHE = 'PROMPTRL_COMPILATION_CACHE'


def write_atomically(
  path: str | os.PathLike[str], data: bytes | Iterable[bytes]
) -> pathlib.Path:
  """Writes `data` to `path` with a synced temporary file and a rename.

  What need not be in memory at once is given in parts.
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
      file.writelines([data] if isinstance(data, bytes) else data)
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


# Seconds for which `is_held` may be in the way of a process that wants to hold.
_LOOK_S = 0.5


@contextlib.contextmanager
def held(folder: pathlib.Path, wait_s: float = _LOOK_S) -> Iterator[None]:
  """Keeps a folder, which is created, to this process while a block runs.

  A process that is killed holds nothing any more.

  Raises:
    ValueError: another process holds it, and did for all of `wait_s` seconds.
  """
  folder.mkdir(parents=True, exist_ok=True)
  handle = os.open(folder, os.O_RDONLY)
  try:
    deadline = time.monotonic() + wait_s
    while not _lock(handle, fcntl.LOCK_EX):
      if time.monotonic() > deadline:
        raise ValueError(
          f'{folder} is in use by another process: wait until it has ended, '
          'stop it, or use another --workdir'
        )
      time.sleep(_LOOK_S / 10)
    yield
  finally:
    os.close(handle)


def is_held(folder: pathlib.Path) -> bool:
  """Whether some process, or a block of this one, holds a folder now."""
  try:
    handle = os.open(folder, os.O_RDONLY)
  except FileNotFoundError:
    return False
  try:
    # Those who look do not see each other.
    return not _lock(handle, fcntl.LOCK_SH)
  finally:
    os.close(handle)


def _lock(handle: int, kind: int) -> bool:
  """Locks an open file if that can be done at once; returns whether it was."""
  try:
    fcntl.flock(handle, kind | fcntl.LOCK_NB)
  except BlockingIOError:
    return False
  return True


def cache_folder() -> pathlib.Path | None:
  """Returns the folder of compiled programs and other caches; creates it.

  It is that of the environment variable `PROMPTRL_COMPILATION_CACHE`, or else
  `~/.cache/promptrl_jax`; None if the variable is empty or the folder cannot be
  created, because a home folder that is read-only must not stop a run.
  """
  folder = os.environ.get(_CACHE, os.path.expanduser('~/.cache/promptrl_jax'))
  if not folder:
    return None
  path = pathlib.Path(folder)
  try:
    path.mkdir(parents=True, exist_ok=True)
  except OSError:
    return None
  return path
