"""Landlock restricts the files that a candidate may access, without privileges.

See landlock(7). The zygote creates the ruleset once; a process that has entered
it cannot leave it.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable

from promptrl_jax.execution import kernel

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
# Number of rights on files by first version of the interface that knows them: a
# ruleset must not name rights that the kernel does not know.
_FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 5: 16}
_TCP = 0b11  # bind and connect, from version 4
_SCOPES = 0b11  # abstract sockets and signals, from version 6
_VERSION = 1  # landlock_create_ruleset: only tell the version
_PATH_BENEATH = 1


class _Ruleset(ctypes.Structure):
  _fields_ = [
    ('files', ctypes.c_uint64),
    ('network', ctypes.c_uint64),
    ('scopes', ctypes.c_uint64),
  ]


class _PathBeneath(ctypes.Structure):
  _pack_ = 1
  _fields_ = [('rights', ctypes.c_uint64), ('directory', ctypes.c_int32)]


def version() -> int:
  """Version of the Landlock interface; 0 if the kernel has none."""
  try:
    return kernel.syscall('landlock_create_ruleset', None, 0, _VERSION)
  except OSError:
    return 0


def make_ruleset(readable: Iterable[str], writable: Iterable[str]) -> int:
  """Creates a ruleset that allows access to nothing but the given paths.

  Args:
    readable: files and directories to read, with everything below them.
    writable: directories in which everything is allowed; devices to write.

  Raises:
    OSError: the kernel has no Landlock.
  """
  abi = version()
  count = max(
    (n for first, n in _FILE_RIGHTS.items() if first <= abi), default=0
  )
  every = (1 << count) - 1
  ruleset = _Ruleset(every, _TCP if abi >= 4 else 0, _SCOPES if abi >= 6 else 0)
  size = 8 if abi < 4 else 16 if abi < 6 else 24
  descriptor = kernel.syscall(
    'landlock_create_ruleset', ctypes.byref(ruleset), size, 0
  )
  for path in readable:
    _allow(descriptor, path, _READ_FILE | _READ_DIR)
  for path in writable:
    _allow(descriptor, path, every & ~_EXECUTE)
  return descriptor


def enter(ruleset: int) -> None:
  """Applies the ruleset to this process irrevocably; needs no_new_privs."""
  kernel.syscall('landlock_restrict_self', ruleset, 0)


def _allow(ruleset: int, path: str, rights: int) -> None:
  try:
    opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
  except FileNotFoundError:
    return
  try:
    if not os.path.isdir(path):
      rights &= _WRITE_FILE | _READ_FILE
    rule = _PathBeneath(rights, opened)
    kernel.syscall(
      'landlock_add_rule', ruleset, _PATH_BENEATH, ctypes.byref(rule), 0
    )
  finally:
    os.close(opened)
