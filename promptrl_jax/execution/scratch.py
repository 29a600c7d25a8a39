"""Directories that programs write into, and getting rid of them."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat

_PREFIX = 'promptrl-execution-'
_MAX_BYTES = 16 * 2**20  # As in a root of its own, see `namespaces.py`.
_MAX_FILES = 4096
_LOCKS: dict[str, int] = {}  # Of the directories that this process has made.


def make() -> str:
  """A directory for this process, in memory where possible.

  Those of processes that have ended without removing theirs are removed.
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
      # The number may be one of another namespace, but a lock is a lock.
      held = _lock(left)
      if held is not None:
        remove(left)
        os.close(held)
  folder = tempfile.mkdtemp(prefix=f'{_PREFIX}{os.getpid()}-', dir=parent)
  held = _lock(folder)
  if held is not None:
    _LOCKS[folder] = held  # Goes with this process, however it ends.
  return folder


def _lock(folder: str) -> int | None:
  """A descriptor that holds the lock of a directory; None if another has it."""
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
  """Removes a directory, whatever a program has made of it.

  Directories are moved up before they are emptied: a program can nest them
  deeper than recursion or the length of a path allows. What cannot be removed
  stays.
  """
  if folder in _LOCKS:
    os.close(_LOCKS.pop(folder))
  with contextlib.suppress(OSError):
    if _is_removed(folder):
      return
    mark, number = os.urandom(8).hex(), 0
    while entries := _entries(folder):
      for entry in entries:
        for inner in _entries(entry.path) if _is_directory(entry) else ():
          if _is_directory(inner):
            os.chmod(inner.path, 0o700)  # To move it, one must own its `..`.
            number += 1
            os.rename(inner.path, os.path.join(folder, f'{mark}{number}'))
          else:
            os.unlink(inner.path)
        if _is_directory(entry):
          os.rmdir(entry.path)
        else:
          os.unlink(entry.path)
    os.rmdir(folder)


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
  """Whether it is this user's directory, not a link that another has laid."""
  with contextlib.suppress(FileNotFoundError):
    found = os.lstat(path)
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
  return False


def is_small(folder: str) -> bool:
  """Whether a program has left room for others.

  What cannot be looked at is not small: no honest program hides its files.
  """
  size, count, left = 0, 0, [folder]
  while left:
    try:
      with os.scandir(left.pop()) as entries:
        for entry in entries:
          size += entry.stat(follow_symlinks=False).st_blocks * 512
          count += 1
          if size > _MAX_BYTES or count > _MAX_FILES:
            return False
          if _is_directory(entry):
            left.append(entry.path)
    except FileNotFoundError:
      continue  # It was removed meanwhile.
    except OSError:
      return False
  return True


def _is_removed(folder: str) -> bool:
  try:
    os.rmdir(folder)
  except OSError:
    return False
  return True


def _is_directory(entry: os.DirEntry[str]) -> bool:
  return entry.is_dir(follow_symlinks=False)


def _entries(folder: str) -> list[os.DirEntry[str]]:
  os.chmod(folder, 0o700)
  with os.scandir(folder) as entries:
    return list(entries)
