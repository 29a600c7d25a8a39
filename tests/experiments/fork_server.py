"""Starts experiments for tests without importing JAX anew for each.

A process that has imported what experiments import, and has done nothing else,
forks for each command and runs the module as `python -m` would. The child is a
process of its own: session, output, exit status and signals are those of a
fresh start, and two seconds of imports are saved.

Standard input carries a JSON line per command, `{"command": [module, flags],
"stdout": path, "stderr": path}`; standard output answers with two lines, the
process id and, once it has ended, the wait status. One command runs at a time.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import json
import os
import pathlib
import pkgutil
import runpy
import sys
import traceback
from typing import NoReturn

import promptrl_jax


def main() -> None:
  """Serves commands until standard input is closed."""
  _preload()
  gc.freeze()  # What children share stays in pages that are shared.
  for line in sys.stdin:
    pid = os.fork()
    if pid == 0:
      _become(**json.loads(line))
    print(pid, flush=True)
    print(os.waitpid(pid, 0)[1], flush=True)


def _preload() -> None:
  """Imports the package without its commands, whose flags are their own.

  Pictures are drawn by most commands, which import that library late.
  """
  importlib.import_module('matplotlib.pyplot')
  for package in pkgutil.walk_packages(promptrl_jax.__path__, 'promptrl_jax.'):
    spec = importlib.util.find_spec(package.name)
    assert spec is not None and spec.origin is not None, package.name
    source = pathlib.Path(spec.origin).read_text(encoding='utf-8')
    if not package.name.endswith('__main__') and 'flags.DEFINE' not in source:
      importlib.import_module(package.name)


def _become(command: list[str], stdout: str, stderr: str) -> NoReturn:
  """Turns this forked process into the one that a command asks for."""
  os.setsid()
  for number, path, mode in (
    (0, os.devnull, os.O_RDONLY),
    (1, stdout, os.O_WRONLY),
    (2, stderr, os.O_WRONLY),
  ):
    descriptor = os.open(path, mode)
    os.dup2(descriptor, number)
    os.close(descriptor)
  sys.argv = list(command)
  status = 1
  try:
    runpy.run_module(command[0], run_name='__main__', alter_sys=True)
    status = 0
  except SystemExit as error:
    status = _status(error)
  except BaseException:
    traceback.print_exc()
  # As at the end of an interpreter: threads, functions of `atexit`, buffers.
  sys.exit(status)


def _status(error: SystemExit) -> int:
  if error.code is None or isinstance(error.code, int):
    return error.code or 0
  print(error.code, file=sys.stderr)
  return 1


if __name__ == '__main__':
  main()
