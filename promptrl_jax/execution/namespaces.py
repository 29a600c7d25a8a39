"""The namespaces of one worker, which the zygote enters once.

Inside there is no network and no process of others. The root has a few
read-only directories and one small file system in memory to write to. It
disappears with the last process in it, so nothing is left behind.
"""

from __future__ import annotations

import ctypes
import os
import sys

from promptrl_jax.execution import kernel

_FLAGS = {
  'user': 0x10000000,
  'mount': 0x00020000,
  'network': 0x40000000,
  'ipc': 0x08000000,
  'uts': 0x04000000,
  'pid': 0x20000000,
}
# Where a candidate may write, inside.
TEMPORARY = '/tmp'
DEVICES = ('/dev/null', '/dev/zero', '/dev/urandom')
_TEMPORARY_SIZE = '16m'

_RDONLY, _NOSUID, _NODEV, _NOEXEC = 1, 2, 4, 8
_REMOUNT, _BIND, _REC, _PRIVATE = 0x20, 0x1000, 0x4000, 0x40000
_DETACH = 2
_AT_RECURSIVE, _AT_FDCWD = 0x8000, -100


class _MountAttributes(ctypes.Structure):
  _fields_ = [
    ('set', ctypes.c_uint64),
    ('clear', ctypes.c_uint64),
    ('propagation', ctypes.c_uint64),
    ('namespace', ctypes.c_uint64),
  ]


def enter() -> tuple[str, ...]:
  """Enters the namespaces that this machine allows; returns their names.

  The pid namespace only holds for children that are forked from now on. Without
  the privilege to create namespaces, a user namespace is created first, which
  grants it.
  """
  entered = []
  wanted = dict(_FLAGS)
  if _may_make_namespaces():
    del wanted['user']
  user, group = os.getuid(), os.getgid()
  for name, flag in wanted.items():
    try:
      kernel.unshare(flag)
      if name == 'user':
        _map_to_self(user, group)
    except OSError:
      if name == 'user':
        break  # Nothing else would work.
      continue
    entered.append(name)
  return tuple(entered)


def make_root(folder: str) -> None:
  """Makes `folder` the root: read-only, with the interpreter and `/tmp`.

  It is empty before; only this namespace sees what is mounted there.

  Raises:
    OSError: this machine does not allow it; then nothing has changed.
  """
  kernel.mount('none', '/', flags=_REC | _PRIVATE)
  kernel.mount('root', folder, 'tmpfs', _NOSUID | _NODEV, 'mode=0755,size=1m')
  try:
    _fill_root(folder)
    os.chdir(folder)
    kernel.syscall('pivot_root', b'.', b'.')
  except OSError:
    os.chdir('/')
    kernel.unmount(folder, _DETACH)
    raise
  kernel.unmount('.', _DETACH)
  os.chdir('/')
  flags = _REMOUNT | _BIND | _RDONLY | _NOSUID | _NODEV
  kernel.mount('none', '/', flags=flags)


def _fill_root(folder: str) -> None:
  for path in (*readable(), *DEVICES):
    _bind(path, folder + path)
  temporary = folder + TEMPORARY
  os.mkdir(temporary)
  kernel.mount(
    'tmp',
    temporary,
    'tmpfs',
    _NOSUID | _NODEV | _NOEXEC,
    f'mode=0755,size={_TEMPORARY_SIZE},nr_inodes=4096',
  )


def readable() -> list[str]:
  """Directories that an interpreter has to read: its own and libraries."""
  wanted = ['/usr', '/lib', '/lib32', '/lib64']
  wanted += [sys.base_prefix, sys.base_exec_prefix]
  wanted += os.environ.get('LD_LIBRARY_PATH', '').split(':')
  kept: list[str] = []
  for path in wanted:
    if not os.path.isdir(path) or os.path.realpath(path) == '/':
      continue
    if not any(path == k or path.startswith(f'{k}/') for k in kept):
      kept.append(path)
  return kept


def _may_make_namespaces() -> bool:
  """Whether this process has CAP_SYS_ADMIN."""
  with open('/proc/self/status', encoding='ascii') as file:
    line = next(line for line in file if line.startswith('CapEff'))
  return bool(int(line.split()[1], 16) >> 21 & 1)


def _map_to_self(user: int, group: int) -> None:
  for name, text in (
    ('setgroups', 'deny'),
    ('uid_map', f'{user} {user} 1'),
    ('gid_map', f'{group} {group} 1'),
  ):
    with open(f'/proc/self/{name}', 'w', encoding='ascii') as file:
      file.write(text)


def _bind(path: str, target: str) -> None:
  """Mounts `path` at `target`, a directory read-only; copies symbolic links."""
  os.makedirs(os.path.dirname(target), exist_ok=True)
  if os.path.islink(path):
    os.symlink(os.readlink(path), target)
    return
  if not os.path.isdir(path):
    os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o600))
    kernel.mount(path, target, flags=_BIND)
    return
  os.makedirs(target, exist_ok=True)
  kernel.mount(path, target, flags=_BIND | _REC)
  attributes = _MountAttributes(set=_RDONLY | _NOSUID | _NODEV)
  try:
    kernel.syscall(
      'mount_setattr',
      ctypes.c_int(_AT_FDCWD),
      target.encode(),
      _AT_RECURSIVE,
      ctypes.byref(attributes),
      ctypes.sizeof(attributes),
    )
  except OSError:  # Before Linux 5.12: mounts below it stay writable.
    flags = _REMOUNT | _BIND | _RDONLY | _NOSUID | _NODEV
    kernel.mount('none', target, flags=flags)
