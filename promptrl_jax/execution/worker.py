"""Entry point of a worker process: splits into judge and zygote, then serves.

Started by `pool.py` in a clean interpreter, in which the two packages above
this file are stubs, so that nothing else of the project can be imported.
"""

from __future__ import annotations

import os
import resource
import signal
import socket
import sys
import traceback

from promptrl_jax.execution import limits, zygote

# Of the judge: a comparison such as `10 ** f(1) == 10` must not take it all.
_JUDGE_MEMORY = 2 * 2**30


def main() -> None:
  """Serves programs until the trainer is gone.

  Command line: number of the socket to the trainer, process id of the trainer,
  scratch directory.
  """
  descriptor, trainer_pid, folder = sys.argv[1:]
  limits.die_with_parent(int(trainer_pid))
  limits.adopt_orphans()
  limits.hide_memory()
  # The highest number bounds what a candidate has to close.
  limits.set_limit(resource.RLIMIT_NOFILE, 256, 256)
  signal.signal(signal.SIGINT, signal.SIG_IGN)
  trainer = socket.socket(fileno=int(descriptor))
  control, zygote_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
  # The zygote is forked before the judge has heard of any program.
  if os.fork() == 0:
    try:
      # It keeps its copy of `trainer` open and unused: that the trainer's end
      # reads as closed means that both processes have ended.
      control.close()
      signal.signal(signal.SIGINT, signal.SIG_DFL)
      zygote.serve(zygote_end, folder)
    except BaseException:
      traceback.print_exc()
    finally:
      zygote.kill_children()
      os._exit(0)
  zygote_end.close()
  limits.set_limit(resource.RLIMIT_AS, _JUDGE_MEMORY, _JUDGE_MEMORY)
  from promptrl_jax.execution import judge  # Not needed in the zygote.

  try:
    judge.serve(trainer, control)
  finally:
    control.close()  # Tells the zygote to end.
    _wait_for_zygote()


def _wait_for_zygote() -> None:
  try:
    os.waitpid(-1, 0)
  finally:
    zygote.kill_children()  # What a killed zygote left behind.
