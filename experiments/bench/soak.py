"""Checks that memory and descriptors do not grow over very many programs."""

from __future__ import annotations

import dataclasses
import itertools
import os
import pathlib
import time
from collections.abc import Iterable
from typing import Any

from promptrl_jax.execution import ExecutionPool, Program

_BATCH = 2048
# For this share of the programs, caches of bounded size may still fill: the
# judge keeps the last 4,096 tests that it has read.
_WARM_UP = 0.1
_MEMORY_SLACK_MB = 16.0


class NotFlatError(RuntimeError):
  """Raised if memory, descriptors or processes have grown."""


@dataclasses.dataclass(frozen=True)
class Usage:
  """Resources of one process.

  Attributes:
    memory_mb: resident memory in MiB.
    descriptors: number of open descriptors; None if the kernel hides them.
  """

  memory_mb: float
  descriptors: int | None


def soak(
  programs: Iterable[Program], count: int, workers: int
) -> dict[str, Any]:
  """Runs `count` programs and compares the processes before and after.

  Returns:
    Number of programs, seconds, growth of memory, processes and descriptors.

  Raises:
    NotFlatError: memory, descriptors or processes have grown.
  """
  stream = itertools.islice(programs, count)
  start = time.perf_counter()
  with ExecutionPool(workers) as pool:
    warm_up = max(4 * workers, int(_WARM_UP * count))  # Starts every worker.
    _run(pool, itertools.islice(stream, warm_up))
    before = usage()
    _run(pool, stream)
    after = usage()
  faults = grown(before, after)
  if faults:
    raise NotFlatError('; '.join(faults))
  trainer = os.getpid()
  growth = {pid: after[pid].memory_mb - before[pid].memory_mb for pid in before}
  return {
    'programs': count,
    'seconds': round(time.perf_counter() - start, 1),
    'trainer_growth_mb': round(growth.pop(trainer), 2),
    'worker_growth_mb': round(max(growth.values()), 2),
    'processes': len(after),
    'descriptors': sum(u.descriptors or 0 for u in after.values()),
  }


def usage() -> dict[int, Usage]:
  """Returns the usage of this process and its descendants, by process id."""
  parents = dict(_parents())
  family = {os.getpid()}
  while (
    children := {pid for pid, parent in parents.items() if parent in family}
    - family
  ):
    family |= children
  usages = {}
  for pid in family:
    try:
      usages[pid] = _usage(pathlib.Path(f'/proc/{pid}'))
    except (FileNotFoundError, ProcessLookupError):
      continue
  return usages


def grown(before: dict[int, Usage], after: dict[int, Usage]) -> list[str]:
  """Describes what has grown; the list is empty if nothing has."""
  faults = []
  for pid in sorted(before.keys() ^ after.keys()):
    faults.append(f'process {pid} has {"ended" if pid in before else "begun"}')
  for pid in sorted(before.keys() & after.keys()):
    old, new = before[pid], after[pid]
    if new.memory_mb > old.memory_mb + _MEMORY_SLACK_MB:
      faults.append(
        f'memory of {pid} went from {old.memory_mb:.1f} to {new.memory_mb:.1f} '
        'MiB'
      )
    if (new.descriptors or 0) > (old.descriptors or 0):
      faults.append(
        f'descriptors of {pid} went from {old.descriptors} to {new.descriptors}'
      )
  return faults


def _run(pool: ExecutionPool, programs: Iterable[Program]) -> None:
  rest = iter(programs)
  while batch := list(itertools.islice(rest, _BATCH)):
    failed = sum(not result.passed for result in pool.run(batch))
    if failed:
      raise RuntimeError(f'{failed} of {len(batch)} references did not pass')


def _parents() -> Iterable[tuple[int, int]]:
  for path in pathlib.Path('/proc').iterdir():
    if path.name.isdigit():
      try:
        stat = (path / 'stat').read_bytes()
      except (FileNotFoundError, ProcessLookupError):
        continue
      yield int(path.name), int(stat.rpartition(b')')[2].split()[1])


def _usage(process: pathlib.Path) -> Usage:
  pages = int((process / 'statm').read_text().split()[1])
  try:
    descriptors = len(os.listdir(process / 'fd'))
  except PermissionError:  # A worker hides itself from all but root.
    descriptors = None
  return Usage(pages * os.sysconf('SC_PAGE_SIZE') / 2**20, descriptors)
