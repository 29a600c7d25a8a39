"""The zygote: the process that forks one candidate after the other.

It is started with exec, so neither the zygote nor its forks have ever held a
test. It sends the layers that it has to the judge. After that, both take turns:

  judge:  {'start': role, 'limits'}, with the new process's end of a socket pair
  judge:  {'end': role}, when it is done with that process
  zygote: [wait status, processor seconds], once the process is gone

A role is `candidate` or `tester`; there is at most one process of each.

When the judge is gone, the zygote ends all running processes and exits.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import os
import signal
import socket
import sys
import time

from promptrl_jax.execution import (
  candidate,
  kernel,
  names,
  namespaces,
  scratch,
  wire,
)
from promptrl_jax.execution import layers as layers_lib
from promptrl_jax.execution import limits as limits_lib


def main() -> None:
  """Forks candidates until the judge closes its socket.

  Command line: the descriptor of the sequenced-packet socket to the judge, a
  descriptor to keep open for as long as any process of this worker runs, the
  process id of the judge, an empty directory.
  """
  control_number, kept, judge, folder = sys.argv[1:]
  kernel.die_with_parent(int(judge))
  preload()
  sys.argv = ['program']
  control = socket.socket(fileno=int(control_number))
  processes = limits_lib.user_tasks() if os.getuid() else None
  number = os.getpid()
  entered = namespaces.enter()
  is_first = 'pid' in entered
  if is_first and (pid := os.fork()):
    control.close()
    os.close(int(kept))
    os.waitpid(pid, 0)
    os._exit(0)
  if not is_first:
    kernel.adopt_orphans()
  sandbox = layers_lib.Sandbox(folder, entered, number)
  sandbox.confine()
  # After `confine`: a change of user or group resets this.
  kernel.die_with_parent(None if is_first else int(judge))
  if sandbox.layers.user is not None:
    processes = 0
  limits_lib.apply_common()
  # Candidates inherit /dev/null on 0 to 2.
  sys.stderr = os.fdopen(os.dup(2), 'w')
  os.dup2(1, 2)
  gc.collect()
  gc.disable()
  gc.freeze()
  control.send(wire.dump(vars(sandbox.layers)))
  running: dict[str, int] = {}
  try:
    _serve(control, sandbox, running, processes, is_first)
  finally:
    for pid in running.values():
      _end(pid)
    kill_children(is_first)
    os._exit(0)


def preload() -> None:
  """Imports the modules that programs import most."""
  # Keeps `random` from reseeding itself in every fork: a program must draw the
  # same numbers each time.
  register, os.register_at_fork = os.register_at_fork, lambda **_: None
  for name in names.PRELOADED:
    importlib.import_module(name)
  os.register_at_fork = register
  sys.modules['random'].seed(0)


def _serve(
  control: socket.socket,
  sandbox: layers_lib.Sandbox,
  running: dict[str, int],
  processes: int | None,
  is_first: bool,
) -> None:
  number = 0
  while True:
    # Every page that this loop touches is copied once per fork, so it does as
    # little as possible.
    try:
      message, descriptors, _, _ = socket.recv_fds(control, 4096, 1)
    except OSError:
      return
    if not message:
      return
    role, limits, answer_bytes = _order(message, processes)
    if limits is None:
      ended = _end(running.pop(role))
      if not running:
        if not sandbox.layers.seccomp:  # With it, no others can exist.
          kill_children(is_first)
        scratch.clear('.')
      control.send(wire.dump(ended))
      continue
    number += 1
    private = sandbox.make_folder(number)
    pid = os.fork()
    if pid == 0:
      try:
        candidate.run(
          role, descriptors[0], private, sandbox, limits, answer_bytes
        )
      finally:
        os._exit(1)  # Also when the judge closes the channel.
    os.close(descriptors[0])
    running[role] = pid


@functools.lru_cache(maxsize=256)
def _order(
  message: bytes, processes: int | None
) -> tuple[str, limits_lib.Prepared | None, int]:
  """Parses an order: role, limits (None: end it), largest size of an answer."""
  order = wire.load(message)
  if 'end' in order:
    return order['end'], None, 0
  limits = limits_lib.Limits(**order['limits'])
  prepared = limits_lib.prepare(limits, processes)
  return order['start'], prepared, limits.answer_kb * 1024


def _end(pid: int) -> tuple[int, float]:
  """Kills a process and its session; returns wait status and CPU seconds."""
  try:
    os.killpg(pid, signal.SIGKILL)
  except ProcessLookupError:  # It has not called setsid yet.
    os.kill(pid, signal.SIGKILL)
  _, status, usage = os.wait4(pid, 0)
  return status, usage.ru_utime + usage.ru_stime


def kill_children(is_first: bool) -> None:
  """Kills and reaps every child, and the orphans that each one leaves.

  This process adopts orphans, so a process that left the candidate's session
  becomes its child once the parent has been killed. The first process of a
  namespace can kill all others there at once.
  """
  if is_first:
    with contextlib.suppress(ProcessLookupError):
      os.kill(-1, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
      while True:
        os.waitpid(-1, 0)
    return
  deadline = time.monotonic() + 10.0
  while time.monotonic() < deadline:
    try:
      if os.waitpid(-1, os.WNOHANG)[0]:
        continue
    except ChildProcessError:
      return
    for child in _children():
      try:
        os.kill(child, signal.SIGKILL)
      except ProcessLookupError:
        continue
    time.sleep(0.001)


def _children() -> list[int]:
  me, children = os.getpid(), []
  for name in os.listdir('/proc'):
    if name.isdigit():
      try:
        with open(f'/proc/{name}/stat', 'rb') as file:
          parent = int(file.read().rpartition(b')')[2].split()[1])
      except OSError:
        continue  # It ended meanwhile.
      if parent == me:
        children.append(int(name))
  return children
