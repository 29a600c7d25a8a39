"""System calls that the standard library does not wrap; Linux only."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time

# Numbers of the calls for which libc has no function, by machine.
_NUMBERS = {
  'x86_64': {'pivot_root': 155},
  'aarch64': {'pivot_root': 41},
}
# Newer calls have the same number on every machine.
_COMMON = {
  'mount_setattr': 442,
  'landlock_create_ruleset': 444,
  'landlock_add_rule': 445,
  'landlock_restrict_self': 446,
}
PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_CLEAR_ALL = 4
_CAPABILITY_VERSION_3 = 0x20080522

# Created here and not after each fork, where creating types is expensive.
_CAPABILITIES_OF_SELF = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
_NO_CAPABILITIES = (ctypes.c_uint32 * 6)()

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long
_libc.prctl.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]
_libc.mount.argtypes = [
  *([ctypes.c_char_p] * 3),
  ctypes.c_ulong,
  ctypes.c_char_p,
]


def cpu_s(pid: int) -> float:
  """Processor seconds of a process, see clock_getcpuclockid(3); 0 if gone."""
  try:
    return time.clock_gettime((~pid << 3) | 2)
  except OSError:
    return 0.0


def machine() -> str:
  """The architecture of this process's system calls."""
  return os.uname().machine


def syscall(name: str, *args: object) -> int:
  """Makes a system call by name.

  Raises:
    OSError: the call failed, or its number on this machine is not known.
  """
  number = _COMMON.get(name) or _NUMBERS.get(machine(), {}).get(name)
  if number is None:
    raise OSError(f'no number for {name} on {machine()}')
  return _checked(_libc.syscall(ctypes.c_long(number), *args), name)


def prctl(option: int, first: int = 0, second: int = 0) -> int:
  """prctl(2); pointers as addresses, the other arguments are 0."""
  return _checked(_libc.prctl(option, first, second, 0, 0), 'prctl')


def unshare(flags: int) -> None:
  """unshare(2)."""
  _checked(_libc.unshare(flags), 'unshare')


def mount(
  source: str, target: str, kind: str = '', flags: int = 0, data: str = ''
) -> None:
  """mount(2)."""
  result = _libc.mount(
    source.encode(),
    target.encode(),
    kind.encode() or None,
    flags,
    data.encode() or None,
  )
  _checked(result, f'mount {target}')


def unmount(target: str, flags: int) -> None:
  """umount2(2)."""
  _checked(_libc.umount2(target.encode(), flags), f'umount {target}')


def die_with_parent(parent: int | None) -> None:
  """Has the kernel kill this process when the thread that started it ends.

  `parent` tells whether it has ended already; None if it is in another
  namespace.
  """
  prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))
  if parent is not None and os.getppid() != parent:
    sys.exit('the parent process has ended')


def adopt_orphans() -> None:
  """Makes this process the parent of descendants whose parent ends."""
  prctl(_PR_SET_CHILD_SUBREAPER, 1)


def hide_memory() -> None:
  """Keeps processes without privileges from reading this one's memory."""
  prctl(_PR_SET_DUMPABLE, 0)


def forbid_privileges() -> None:
  """Keeps this process and its descendants from gaining privileges."""
  prctl(_PR_SET_NO_NEW_PRIVS, 1)
  prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)


def drop_capabilities() -> None:
  """Takes all capabilities from this process; see `forbid_privileges`."""
  _checked(_libc.capset(_CAPABILITIES_OF_SELF, _NO_CAPABILITIES), 'capset')


def _checked(result: int, what: str) -> int:
  if result < 0:
    number = ctypes.get_errno()
    raise OSError(number, f'{what}: {os.strerror(number)}')
  return result
