"""Runs a script on several processes of this machine, for tests.

  done = processes.run(SCRIPT, 2, 'argument')
  assert [d.returncode for d in done] == [0, 0], processes.report(done)

The script can use the globals `config` (None for one process) and `ARGS`, and
must enter `distributed.session(config)` itself.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence

ROOT = pathlib.Path(__file__).parents[2]
# After one process has failed, the others get this long to end by themselves.
_GRACE_S = 30.0

_HEADER = """
import os, sys
import jax
jax.config.update('jax_platforms', 'cpu')
jax.config.update('jax_num_cpu_devices', int(sys.argv[4]))
from promptrl_jax.parallel import distributed
config = None
if int(sys.argv[2]) > 1:
  config = distributed.DistributedConfig(
    sys.argv[1], int(sys.argv[2]), int(sys.argv[3]),
    timeout_s=60, heartbeat_s=10)
ARGS = sys.argv[5:]
"""


@dataclasses.dataclass(frozen=True)
class Done:
  """The result of a process.

  Attributes:
    returncode: exit status; negative: the signal that ended the process.
    stdout, stderr: output of the process.
  """

  returncode: int
  stdout: str
  stderr: str


def free_port() -> int:
  """Returns a free port."""
  with socket.socket() as probe:
    probe.bind(('127.0.0.1', 0))
    return probe.getsockname()[1]


def run(
  script: str,
  count: int,
  *args: str,
  devices: int = 1,
  timeout: float = 300.0,
) -> list[Done]:
  """Runs a script on `count` processes with `devices` CPU devices each."""
  address = f'127.0.0.1:{free_port()}'
  return run_commands(
    [
      [
        sys.executable,
        '-c',
        _HEADER + script,
        address,
        str(count),
        str(process),
        str(devices),
        *args,
      ]
      for process in range(count)
    ],
    timeout,
  )


def run_commands(
  commands: Sequence[Sequence[str]], timeout: float
) -> list[Done]:
  """Runs commands side by side to their end.

  When one fails the others have half a minute; then they are killed. Nothing
  that they started is left.

  Raises:
    TimeoutError: they took longer than `timeout` seconds.
  """
  with contextlib.ExitStack() as stack:
    files = [
      [stack.enter_context(tempfile.TemporaryFile('w+')) for _ in range(2)]
      for _ in commands
    ]
    started = [
      subprocess.Popen(
        command,
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=err,
        env=_environment(),
        start_new_session=True,
      )
      for command, (out, err) in zip(commands, files, strict=True)
    ]
    try:
      in_time = _wait(started, timeout)
    finally:
      for process in started:
        with contextlib.suppress(ProcessLookupError):
          os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    done = []
    for process, pair in zip(started, files, strict=True):
      for file in pair:
        file.seek(0)
      done.append(Done(process.returncode, *(file.read() for file in pair)))
  if not in_time:
    raise TimeoutError(f'not done within {timeout:g} s\n{report(done)}')
  return done


def _environment() -> dict[str, str]:
  """That of this process, without a simulated number of devices."""
  flags = os.environ.get('XLA_FLAGS', '').split()
  kept = [flag for flag in flags if 'device_count' not in flag]
  return {**os.environ, 'XLA_FLAGS': ' '.join(kept)}


def _wait(started: Sequence[subprocess.Popen], timeout: float) -> bool:
  """Waits; returns False if processes hang although none has failed."""
  deadline, failed = time.monotonic() + timeout, False
  while any(process.poll() is None for process in started):
    if not failed and any(process.returncode for process in started):
      failed, deadline = True, time.monotonic() + _GRACE_S
    if time.monotonic() > deadline:
      return failed
    time.sleep(0.05)
  return True


def report(done: Sequence[Done]) -> str:
  """Returns the end of each process's output, for assertion messages."""
  return '\n'.join(
    f'--- process {i}: {d.returncode}\n{d.stdout[-1500:]}\n{d.stderr[-3000:]}'
    for i, d in enumerate(done)
  )
