"""Start and surroundings of a job: devices, plug-ins, pool, header.

No flags here.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from promptrl_jax import registry
from promptrl_jax.execution import ExecutionPool, Limits
from promptrl_jax.execution.header import ImportHeaderPool
from promptrl_jax.parallel import compilation
from promptrl_jax.parallel import mesh as mesh_lib
from promptrl_jax.tools import command


def begin(config, *, use_cpu_cores: bool = True) -> None:
  """Prepares this process; call it before the first computation.

  Args:
    config: its `plugins` are imported.
    use_cpu_cores: split the CPU into a device per core, unless several
      processes have done so before they joined.

  Raises:
    ValueError: a plug-in cannot be imported.
  """
  if use_cpu_cores:
    mesh_lib.use_cpu_cores()
  compilation.use_cache()
  command.log_warnings_alone()
  registry.import_plugins(config.plugins)


@contextlib.contextmanager
def open_pool(settings) -> Iterator[Any]:
  """The execution pool of the section `pool`, closed at the end."""
  limits = Limits(cpu_s=settings.cpu_s, memory_mb=settings.memory_mb)
  with ExecutionPool(settings.workers, limits, settings.allow_weak) as pool:
    print(f'programs run behind {pool.layers.describe()}')
    if settings.get('import_header', False):
      yield ImportHeaderPool(pool)
    else:
      yield pool


def make_header(
  job: str,
  data_hash: str,
  models: Mapping[str, str],
  seeds: Sequence[int],
  **more: Any,
) -> dict[str, Any]:
  """The header of a report: where its numbers come from.

  Args:
    job: module of the job, below `experiments`.
    data_hash: name and hash of the data.
    models: names of the models by role.
    seeds: seeds of the runs.
    **more: further entries.
  """
  command_line = ['python', '-m', f'experiments.{job}', *sys.argv[1:]]
  return {
    'data_hash': data_hash,
    'model_hashes': dict(models),
    'seeds': list(seeds),
    'command': ' '.join(command_line),
    **more,
  }
