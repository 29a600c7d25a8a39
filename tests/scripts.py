"""Runs a script in a process of its own, e.g. with devices of its own."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
from typing import Any

_ROOT = pathlib.Path(__file__).parents[1]


def run(script: str, *arguments: object, timeout: float = 300.0) -> str:
  """What a script printed; it must not have failed."""
  done = subprocess.run(
    [sys.executable, '-c', script, *map(str, arguments)],
    cwd=_ROOT,
    capture_output=True,
    text=True,
    timeout=timeout,
    check=False,
  )
  assert done.returncode == 0, done.stderr[-3000:]
  return done.stdout


def found(script: str, *arguments: object, timeout: float = 300.0) -> Any:
  """The JSON of the last line that a script printed."""
  printed = run(script, *arguments, timeout=timeout)
  return json.loads(printed.splitlines()[-1])
