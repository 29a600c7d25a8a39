"""The process that forks one candidate after the other.

It was forked from the worker before the first program arrived, so neither it
nor what it forks has ever held a test. It and the judge speak in turns:

  judge:  limits as JSON, with the candidate's end of a socket pair
  zygote: process id of the candidate
  judge:  anything, when it is done with the candidate
  zygote: [wait status, processor seconds], when nothing of it is left

When the judge is gone it ends whatever runs and exits.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import signal
import socket
import sys
import time

from promptrl_jax.execution import candidate, scratch
from promptrl_jax.execution import limits as limits_lib

# Imported once here instead of by every program.
_PRELOAD = [
  'array',
  'bisect',
  'cmath',
  'collections',
  'copy',
  'datetime',
  'decimal',
  'fractions',
  'functools',
  'heapq',
  'itertools',
  'json',
  'math',
  'operator',
  'random',
  're',
  'statistics',
  'string',
  'sys',
  'time',
  'typing',
]


def serve(control: socket.socket, folder: str) -> None:
  """Forks candidates until the judge closes `control`.

  Args:
    control: sequenced-packet socket to the judge.
    folder: existing directory, under which each candidate gets its own.
  """
  limits_lib.adopt_orphans()
  limits_lib.drop_privileges()
  for name in _PRELOAD:
    importlib.import_module(name)
  sys.argv = ['program']
  processes = limits_lib.user_tasks() if os.getuid() else None
  gc.collect()
  gc.disable()
  gc.freeze()
  number = 0
  while True:
    message, descriptors, _, _ = socket.recv_fds(control, 4096, 1)
    if not message:
      return
    limits = limits_lib.Limits(**json.loads(message))
    number += 1
    private = os.path.join(folder, str(number))
    os.mkdir(private, 0o700)
    pid = os.fork()
    if pid == 0:
      try:
        channel = socket.socket(fileno=descriptors[0])
        candidate.run(channel, limits, private, processes)
      finally:
        os._exit(1)  # Also when the judge closes the channel.
    os.close(descriptors[0])
    try:
      control.send(str(pid).encode())
      message = control.recv(64)
    except OSError:
      message = b''
    status, cpu_s = _end(pid)
    scratch.remove(private)
    if not message:
      return
    control.send(json.dumps([status, cpu_s]).encode())


def _end(pid: int) -> tuple[int, float]:
  """Kills the candidate with all it started: wait status, processor seconds."""
  for kill in (os.killpg, os.kill):
    with contextlib.suppress(ProcessLookupError):  # No session of its own yet.
      kill(pid, signal.SIGKILL)
  _, status, usage = os.wait4(pid, 0)
  kill_children()
  return status, usage.ru_utime + usage.ru_stime


def kill_children() -> None:
  """Kills and reaps every child, and the orphans that come with each.

  A process that left the candidate's session comes here, as this process adopts
  orphans, once its parent has been killed.
  """
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
  me, found = os.getpid(), []
  for name in os.listdir('/proc'):
    if name.isdigit():
      try:
        with open(f'/proc/{name}/stat', 'rb') as file:
          parent = int(file.read().rpartition(b')')[2].split()[1])
      except OSError:
        continue  # It ended meanwhile.
      if parent == me:
        found.append(int(name))
  return found
