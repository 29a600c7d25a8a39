"""Entry point of a worker process: starts its zygote, then is the judge.

Started by `process.py` in a clean interpreter, in which the two packages above
this file are stubs, so that nothing else of the project can be imported.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import signal
import socket
import subprocess
import sys

from promptrl_jax.execution import judge, kernel, limits

# Address space of the judge, which a comparison such as `10 ** f(1) == 10`
# could fill.
_JUDGE_MEMORY = 2 * 2**30
_STOP_S = 5.0


def main() -> None:
  """Serves programs until the trainer is gone.

  Command line: the command that starts an interpreter with a module of this
  package (as JSON), the descriptor of the socket to the trainer, the process id
  of the trainer, the scratch directory.
  """
  boot, descriptor, trainer_pid, folder = sys.argv[1:]
  kernel.die_with_parent(int(trainer_pid))
  kernel.adopt_orphans()
  signal.signal(signal.SIGINT, signal.SIG_IGN)
  # A trainer with many open files passes a high descriptor. It has to lie below
  # the limit on open files, up to which a candidate closes descriptors.
  trainer = socket.socket(fileno=os.dup(int(descriptor)))
  os.close(int(descriptor))
  descriptor = str(trainer.fileno())
  limits.set_limit(resource.RLIMIT_NOFILE, 256, 256)
  control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
  with theirs:
    # The zygote keeps a copy of `trainer` open and unused, so the trainer sees
    # its socket closed only once both processes have ended.
    zygote = subprocess.Popen(
      [
        *json.loads(boot),
        *('zygote', str(theirs.fileno()), descriptor, str(os.getpid()), folder),
      ],
      stdin=subprocess.DEVNULL,
      stdout=subprocess.DEVNULL,
      pass_fds=[theirs.fileno(), int(descriptor)],
    )
  kernel.hide_memory()
  limits.set_limit(resource.RLIMIT_AS, _JUDGE_MEMORY, _JUDGE_MEMORY)
  gc.freeze()
  gc.set_threshold(100_000)  # Syntax trees are many objects and no cycles.
  try:
    judge.serve(trainer, control, folder)
  finally:
    control.close()  # Tells the zygote to end.
    try:
      zygote.wait(_STOP_S)
    except subprocess.TimeoutExpired:
      zygote.kill()
