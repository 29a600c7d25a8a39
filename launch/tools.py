"""Commands of engines: squeue, kubectl, ..."""

from __future__ import annotations

import shlex
import shutil
import subprocess


class EngineError(OSError):
  """A command of an engine is not installed here, or has failed."""


def require(engine: str, *names: str) -> None:
  """Raises EngineError if a command of an engine is not on the PATH."""
  for name in names:
    if shutil.which(name) is None:
      raise EngineError(
        f'--engine={engine} needs the command {name}, which is not on the '
        'PATH: install it, or start from a machine that has it; --dry_run '
        'prints what would be submitted'
      )


def run(*command: str, text: str | None = None) -> str:
  """Returns what a command prints.

  Args:
    *command: program and arguments.
    text: its input.

  Raises:
    EngineError: it failed; the message has the last line of its errors.
  """
  done = subprocess.run(
    command, input=text, capture_output=True, text=True, check=False
  )
  if done.returncode:
    reason = done.stderr.strip().rpartition('\n')[-1]
    raise EngineError(f'{shlex.join(command)} failed: {reason}')
  return done.stdout
