"""What stands between a candidate and the machine, probed by doing.

A layer counts only if a throw-away child could enter it and then failed to do
what it is there to prevent.
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
_FIRST_USER = 0x6000_0000  # Of a range that no system gives to people.
_PROBE_S = 10


@dataclasses.dataclass(frozen=True)
class Layers:
  """The layers that a worker's candidates run behind.

  Attributes:
    namespaces: those of the worker's own, of user, mount, network, ipc, uts and
      pid.
    root: whether it sees a root of its own, read-only.
    landlock: version of the interface in use, 0 for none.
    seccomp: whether system calls are held to a list.
    user: unprivileged user id that candidates run as; None: the pool's own.
  """

  namespaces: tuple[str, ...] = ()
  root: bool = False
  landlock: int = 0
  seccomp: bool = False
  user: int | None = None

  def missing(self) -> list[str]:
    """What the required minimum lacks; empty if it is met."""
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
    return ', '.join(
      [
        f'namespaces {"+".join(self.namespaces) or "none"}',
        f'own root {"yes" if self.root else "no"}',
        f'Landlock {self.landlock or "no"}',
        f'seccomp {"yes" if self.seccomp else "no"}',
        f'user {"own" if self.user is None else self.user}',
      ]
    )


class Sandbox:
  """The layers of one worker; made in its zygote.

  With seccomp, the zygote enters all of them itself and its forks are born
  behind them, except for a second, short list of system calls. Without it
  nothing but another user keeps a candidate from its zygote, so that each
  candidate enters them on its own.

  Attributes:
    layers: which there are.
    zygote: process id of this process, the parent of candidates.
    highest: no descriptor that it has is above.
  """

  def __init__(self, folder: str, entered: tuple[str, ...], number: int):
    """Builds what is shared by all candidates; changes to the folder for them.

    Args:
      folder: an empty directory of this worker.
      entered: namespaces that this process is in.
      number: differs between the workers of a machine.
    """
    self.zygote = os.getpid()
    self.highest = os.sysconf('SC_OPEN_MAX')
    kernel.forbid_privileges()
    root = 'mount' in entered and _succeeds(
      lambda: namespaces.make_root(folder)
    )
    # By relative paths from here: a user without privileges may be able to
    # write there and not to look at what is above.
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
    # The first version forbids to move directories, which removing them takes.
    self._for_all = self.layers.seccomp and self.layers.landlock != 1

  def confine(self) -> None:
    """In the zygote: enters what all candidates are to be born behind."""
    if self._for_all:
      if (user := self.layers.user) is not None:
        os.chown('.', user, user)
      self._enter()
    kernel.hide_memory()  # A change of user undoes it.
    if self._for_all:
      seccomp.enter_zygote()

  def make_folder(self, number: int) -> str:
    """A directory for one candidate, relative to the present one."""
    private = str(number)
    try:
      os.mkdir(private, 0o700)
    except OSError:  # Another process of the program has been there, or all is
      return '.'  # full: its trouble, not ours.
    user = self.layers.user
    if user is not None and not self._for_all:
      os.chown(private, user, user)
    return private

  def enter(self) -> None:
    """In the candidate: another user, no capabilities, no other files."""
    if not self._for_all:
      self._enter()

  def close(self) -> None:
    """After `enter`, once all is open that will be: no other system calls."""
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
  # The interpreter may lie where only its owner may look.
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


def _succeeds(act: Callable[[], Any]) -> bool:
  return not _fails(act)


def _holds(probe: Callable[[], bool]) -> bool:
  """Whether `probe` returns True in a throw-away child."""
  pid = os.fork()
  if pid == 0:
    status = 1
    try:
      signal.alarm(_PROBE_S)
      status = 0 if probe() else 1
    except BaseException:  # Whatever it was, the layer does not work.
      status = 2
    finally:
      os._exit(status)
  return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
