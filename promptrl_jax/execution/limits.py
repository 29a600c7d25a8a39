"""Resource limits of a program, and the calls that set them.

Limits are enforced twice: the judge reads the clocks of the process from
outside (`child.py`), and the kernel enforces the limits that are set here.
`layers.py` decides what a program may access.
"""

from __future__ import annotations

import dataclasses
import math
import os
import resource

# Address space above the memory limit, in which a process that reached the
# limit can still report it.
_MEMORY_RESERVE = 32 * 2**20
_LARGEST = 2**30  # Largest value of any limit, so that the kernel can count it.


@dataclasses.dataclass(frozen=True)
class Limits:
  """Limits of one program.

  Time is processor time, so that a verdict does not depend on how busy the
  machine is. Loading (the program and its setup) and each test may use `cpu_s`;
  all of them together may use `2 * cpu_s`, after which the rest is not run.

  Attributes:
    cpu_s: processor seconds of loading, and of each test or expression.
    idle_s: seconds in which a test may neither compute nor wait for a
      processor; this limit ends `time.sleep` and waiting for input.
    wall_s: seconds of one test; a last resort where the other two do not apply.
    memory_mb: address space, in MiB.
    file_mb: size of a file that the program writes, in MiB.
    open_files: descriptors.
    processes: threads. Where the kernel counts them, it includes those of other
      processes of the user that have started since the worker did.
    answer_kb: size of the encoded value of one call, in KiB.
  """

  cpu_s: float = 1.0
  idle_s: float = 2.0
  wall_s: float = 60.0
  memory_mb: int = 512
  file_mb: int = 1
  open_files: int = 64
  processes: int = 64
  answer_kb: int = 1024

  def __post_init__(self):
    for field in dataclasses.fields(self):
      value, whole = getattr(self, field.name), field.type == 'int'
      kind = int if whole else (int, float)
      if isinstance(value, bool) or not isinstance(value, kind):
        raise ValueError(
          f'{field.name} must be {"an int" if whole else "a number"}, '
          f'got {value!r}'
        )
      if not 0 < value <= _LARGEST:
        raise ValueError(
          f'{field.name} must be positive and at most {_LARGEST}, got {value!r}'
        )


def apply_common() -> None:
  """Sets, in the zygote, the limits that are the same for all programs."""
  set_limit(resource.RLIMIT_CORE, 0, 0)
  set_limit(resource.RLIMIT_MEMLOCK, 0, 0)
  set_limit(resource.RLIMIT_MSGQUEUE, 0, 0)


Prepared = tuple[tuple[int, tuple[int, int]], ...]


def prepare(limits: Limits, processes: int | None) -> Prepared:
  """Computes the limits that `apply` sets, before the fork.

  `processes` are tasks that the user has already; None sets no limit on tasks.
  """
  cpu_s = math.ceil(2 * limits.cpu_s) + 1  # The judge's clocks come first.
  memory = limits.memory_mb * 2**20
  file_size = limits.file_mb * 2**20
  wanted = [
    (resource.RLIMIT_CPU, cpu_s, cpu_s),
    (resource.RLIMIT_AS, memory, memory + _MEMORY_RESERVE),
    (resource.RLIMIT_FSIZE, file_size, file_size),
    (resource.RLIMIT_NOFILE, limits.open_files, limits.open_files),
  ]
  if processes is not None:
    tasks = processes + limits.processes
    wanted.append((resource.RLIMIT_NPROC, tasks, tasks))
  return tuple(
    (name, _nearest(name, soft, hard)) for name, soft, hard in wanted
  )


def apply(prepared: Prepared) -> None:
  """Sets the limits of this process irrevocably."""
  for name, both in prepared:
    resource.setrlimit(name, both)


def set_limit(name: int, soft: int, hard: int) -> None:
  """Sets a limit, or the nearest one that this process may set."""
  resource.setrlimit(name, _nearest(name, soft, hard))


def _nearest(name: int, soft: int, hard: int) -> tuple[int, int]:
  allowed = resource.getrlimit(name)[1]
  if allowed == resource.RLIM_INFINITY:
    return soft, hard
  return min(soft, allowed), min(hard, allowed)


def use_memory_reserve() -> None:
  """Makes the reserved memory available, to report a MemoryError."""
  hard = resource.getrlimit(resource.RLIMIT_AS)[1]
  resource.setrlimit(resource.RLIMIT_AS, (hard, hard))


def user_tasks() -> int | None:
  """Number of processes and threads of this user; None if it is not known."""
  user, total = os.getuid(), 0
  try:
    for name in os.listdir('/proc'):
      try:
        if name.isdigit() and os.stat(f'/proc/{name}').st_uid == user:
          total += len(os.listdir(f'/proc/{name}/task'))
      except OSError:
        continue  # It ended meanwhile, or this user may not read it.
  except OSError:
    return None
  return total
