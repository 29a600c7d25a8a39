"""Makes, measures and removes the directories that programs write into."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import stat
from collections.abc import Iterator

_PREFIX = 'promptrl-execution-'
_MAX_BYTES = 16 * 2**20  # As in a root of its own, see `namespaces.py`.
_MAX_FILES = 4096
_LOCKS: dict[str, int] = {}  # By directory made here.


def make() -> str:
  """Makes a directory for this process, in memory where possible.

  Also removes the directories of processes that ended without removing them.
  """
  import tempfile  # Not in a zygote: a fork costs what its parent has loaded.

  shared = '/dev/shm'
  parent = shared if os.access(shared, os.W_OK) else tempfile.gettempdir()
  for name in os.listdir(parent):
    pid = name.removeprefix(_PREFIX).partition('-')[0]
    left = os.path.join(parent, name)
    if not (name.startswith(_PREFIX) and pid.isdigit()):
      continue
    if not os.path.exists(f'/proc/{pid}') and _is_own(left):
      # The process may live in another namespace, where it has this id: only
      # the lock tells.
      lock = _lock(left)
      if lock is not None:
        remove(left)
        os.close(lock)
  folder = tempfile.mkdtemp(prefix=f'{_PREFIX}{os.getpid()}-', dir=parent)
  lock = _lock(folder)
  if lock is not None:
    _LOCKS[folder] = lock  # Released with this process, however it ends.
  return folder


def _lock(folder: str) -> int | None:
  """Locks a directory; None if another process holds the lock."""
  try:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
  except OSError:
    return None
  try:
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
  except OSError:
    os.close(descriptor)
    return None
  return descriptor


def remove(folder: str) -> None:
  """Removes a directory, whatever a program has put into it.

  Inner directories are moved up before they are emptied, because a program can
  nest them deeper than recursion or the length of a path allows. What cannot be
  removed stays.
  """
  if folder in _LOCKS:
    os.close(_LOCKS.pop(folder))
  with contextlib.suppress(OSError):
    try:
      os.rmdir(folder)
    except OSError:
      _empty(folder)
      os.rmdir(folder)


def _empty(folder: str) -> None:
  """Removes what is in a directory; raises OSError at what it cannot remove."""
  mark, numbers = os.urandom(8).hex(), itertools.count()
  while entries := _entries(folder):
    for entry in entries:
      if not _is_directory(entry):
        os.unlink(entry.path)
        continue
      for inner in _entries(entry.path):
        if _is_directory(inner):
          os.chmod(inner.path, 0o700)  # To move it, one must own its `..`.
          moved = os.path.join(folder, f'{mark}{next(numbers)}')
          os.rename(inner.path, moved)
        else:
          os.unlink(inner.path)
      os.rmdir(entry.path)


def clear(folder: str) -> None:
  """Removes what is in a directory, so that nothing outlives a program."""
  for name in os.listdir(folder):
    path = os.path.join(folder, name)
    try:
      os.rmdir(path)  # Nearly every program leaves its own empty.
    except NotADirectoryError:
      with contextlib.suppress(OSError):
        os.unlink(path)
    except OSError:
      remove(path)


def _is_own(path: str) -> bool:
  """Whether it is this user's directory, not a link made by another user."""
  with contextlib.suppress(FileNotFoundError):
    status = os.lstat(path)
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()
  return False


def is_small(folder: str) -> bool:
  """Whether a program has left room for others; False if it hides its files."""
  total = 0
  try:
    for count, size in enumerate(_sizes(folder), 1):
      total += size
      if total > _MAX_BYTES or count > _MAX_FILES:
        return False
  except OSError:
    return False
  return True


def _sizes(folder: str) -> Iterator[int]:
  """Bytes on disk of everything below a directory.

  A directory in which something vanishes meanwhile is left where it stands.
  """
  folders = [folder]
  while folders:
    with (
      contextlib.suppress(FileNotFoundError),
      os.scandir(folders.pop()) as entries,
    ):
      for entry in entries:
        yield entry.stat(follow_symlinks=False).st_blocks * 512
        if _is_directory(entry):
          folders.append(entry.path)


def _is_directory(entry: os.DirEntry[str]) -> bool:
  return entry.is_dir(follow_symlinks=False)


def _entries(folder: str) -> list[os.DirEntry[str]]:
  os.chmod(folder, 0o700)
  with os.scandir(folder) as entries:
    return list(entries)
