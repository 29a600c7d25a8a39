"""The isolation layers between a candidate and the machine.

A layer counts only if a throw-away child could enter it and then failed to do
what the layer has to prevent.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import socket
from collections.abc import Callable
from typing import Any

from promptrl_jax.execution import kernel, landlock, namespaces, seccomp

_NOBODY = 65534
_FIRST_USER = 0x6000_0000  # Start of a range that no system assigns to users.
_PROBE_S = 10


@dataclasses.dataclass(frozen=True)
class Layers:
  """The isolation layers of a worker's candidates.

  Attributes:
    namespaces: those that the worker does not share with the machine: some of
      user, mount, network, ipc, uts and pid.
    root: whether candidates see a separate, read-only root directory.
    landlock: version of the Landlock interface in use, 0 for none.
    seccomp: whether system calls are restricted to a list.
    user: unprivileged id that candidates run as; None for the pool's own.
  """

  namespaces: tuple[str, ...] = ()
  root: bool = False
  landlock: int = 0
  seccomp: bool = False
  user: int | None = None

  def missing(self) -> list[str]:
    """Required layers that are not there; empty if the minimum is met."""
    lacks = []
    if not self.seccomp:
      lacks.append('seccomp (system calls, processes, signals)')
    if not (self.landlock or self.root):
      lacks.append('Landlock or a mount namespace (files)')
    if not (self.seccomp or 'network' in self.namespaces):
      lacks.append('seccomp or a network namespace (network)')
    return lacks

  def describe(self) -> str:
    """One line for a log."""
    return (
      f'namespaces {"+".join(self.namespaces) or "none"}, '
      f'own root {"yes" if self.root else "no"}, '
      f'Landlock {self.landlock or "no"}, '
      f'seccomp {"yes" if self.seccomp else "no"}, '
      f'user {"own" if self.user is None else self.user}'
    )


class Sandbox:
  """Enters the isolation layers of one worker; created in its zygote.

  With seccomp, the zygote enters all layers itself and its forks inherit them;
  only a second, short list of system calls is left to each candidate. Without
  seccomp nothing but the change of user protects the zygote from a candidate,
  so each candidate enters the layers after the fork.

  Attributes:
    layers: the layers that work on this machine.
    zygote: process id of this process, the parent of candidates.
    highest: upper bound of the file descriptors of this process.
  """

  def __init__(self, folder: str, entered: tuple[str, ...], number: int):
    """Prepares the layers and changes to the directory for candidates.

    `folder` is an empty directory of this worker, `entered` names the
    namespaces of this process, and `number` differs between workers.
    """
    self.zygote = os.getpid()
    self.highest = os.sysconf('SC_OPEN_MAX')
    kernel.forbid_privileges()
    root = 'mount' in entered and not _fails(
      lambda: namespaces.make_root(folder)
    )
    # Paths are relative from here on: a user without privileges may be allowed
    # to write to this directory but not to read those above it.
    os.chdir(namespaces.TEMPORARY if root else folder)
    self._ruleset: int | None = None
    with contextlib.suppress(OSError):
      self._ruleset = landlock.make_ruleset(
        namespaces.readable(), ['.', *namespaces.DEVICES]
      )
    with contextlib.suppress(OSError):
      seccomp.prepare()
    users = (_FIRST_USER + number % 2**20, _NOBODY)
    user = next((u for u in users if _holds(lambda u=u: _try_user(u))), None)
    self.layers = Layers(
      namespaces=entered,
      root=root,
      user=user,
      landlock=landlock.version() if _holds(self._try_landlock) else 0,
      seccomp=_holds(_try_seccomp),
    )
    if user is not None:
      _leave_groups(user)
    # The first version forbids to move directories, as `scratch.remove` does.
    self._for_all = self.layers.seccomp and self.layers.landlock != 1

  def confine(self) -> None:
    """Enters, in the zygote, the layers that all candidates inherit."""
    if self._for_all:
      if (user := self.layers.user) is not None:
        os.chown('.', user, user)
      self._enter()
    kernel.hide_memory()  # A change of user resets this.
    if self._for_all:
      seccomp.enter_zygote()

  def make_folder(self, number: int) -> str:
    """Creates a directory for one candidate; returns its relative path."""
    private = str(number)
    try:
      os.mkdir(private, 0o700)
    except OSError:  # A program created it, or filled the file system.
      return '.'
    user = self.layers.user
    if user is not None and not self._for_all:
      os.chown(private, user, user)
    return private

  def enter(self) -> None:
    """Enters, in the candidate, the layers that it has not inherited."""
    if not self._for_all:
      self._enter()

  def close(self) -> None:
    """Restricts system calls; after `enter`, once all files are open."""
    if self.layers.seccomp:
      if not self._for_all:
        seccomp.enter_zygote()
      seccomp.enter_candidate(os.getpid())

  def _enter(self) -> None:
    if (user := self.layers.user) is not None:
      os.setresuid(user, user, user)
    kernel.drop_capabilities()
    if self.layers.landlock and self._ruleset is not None:
      landlock.enter(self._ruleset)

  def _try_landlock(self) -> bool:
    if self._ruleset is None:
      return False
    kernel.drop_capabilities()
    landlock.enter(self._ruleset)
    open(os.__file__, 'rb').close()
    return _fails(lambda: os.listdir('/'))


def _leave_groups(user: int) -> None:
  os.setgroups([])
  os.setresgid(user, user, user)


def _try_user(user: int) -> bool:
  _leave_groups(user)
  os.setresuid(user, user, user)
  # The interpreter may lie in a directory that only its owner can read.
  open(os.__file__, 'rb').close()
  return _fails(lambda: os.setuid(0))


def _try_seccomp() -> bool:
  kernel.drop_capabilities()
  seccomp.enter_zygote()
  seccomp.enter_candidate(os.getpid())
  return (
    _fails(lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM).close())
    and _fails(_fork_once)
    and _fails(lambda: os.kill(os.getppid(), 0))
  )


def _fork_once() -> None:
  if os.fork() == 0:
    os._exit(0)


def _fails(act: Callable[[], Any]) -> bool:
  try:
    act()
  except OSError:
    return True
  return False


def _holds(probe: Callable[[], bool]) -> bool:
  """Whether `probe` returns True in a throw-away child."""
  pid = os.fork()
  if pid == 0:
    status = 1
    try:
      signal.alarm(_PROBE_S)
      status = 0 if probe() else 1
    except BaseException:  # Any exception means that the layer does not work.
      status = 2
    finally:
      os._exit(status)
  return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
