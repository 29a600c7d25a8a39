"""Start and surroundings of a job: settings, devices, plug-ins, pool, header.

No flags here.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

import jax
from ml_collections import ConfigDict

from promptrl_jax import registry, settings
from promptrl_jax.evaluation import statistics
from promptrl_jax.evaluation.play import LineUp
from promptrl_jax.execution.config import PoolConfig
from promptrl_jax.execution.memo import MemoPool
from promptrl_jax.llm.attempt import CODER, REWRITER
from promptrl_jax.llm.backend import Backend, BackendError
from promptrl_jax.llm.cache import IN_MEMORY, CachedBackend
from promptrl_jax.llm.ledger import CapExceeded, Ledger, Price
from promptrl_jax.llm.load import BackendConfig, load_backend
from promptrl_jax.parallel import compilation
from promptrl_jax.parallel import mesh as mesh_lib
from promptrl_jax.prompts.examples import ExampleLibrary
from promptrl_jax.prompts.reflection import Reflection
from promptrl_jax.tools import command
from promptrl_jax.types import Task, UnitTests

Settings = TypeVar('Settings')
# Share of problems that two strategies typically disagree on.
_DISCORDANT = 0.15


def begin(
  cls: type[Settings], config: ConfigDict, *, use_cpu_cores: bool = True
) -> Settings:
  """Prepares this process and checks the settings of its job.

  Call it before the first computation.

  Args:
    cls: dataclass of the settings, with a field `plugins`.
    config: their values, from a config file and flags.
    use_cpu_cores: split the CPU into a device per core, unless several
      processes have done so before they joined.

  Raises:
    ValueError: a plug-in cannot be imported, or a setting makes no sense.
  """
  if use_cpu_cores:
    mesh_lib.use_cpu_cores()
  compilation.use_cache()
  command.log_warnings_alone()
  registry.import_plugins(config.plugins)  # Settings may name what they add.
  return settings.from_mapping(cls, config.to_dict())


def check_templates(config, roles: Sequence[str] = ('coder',)) -> None:
  """Raises ValueError for a server that would be asked as embedded models."""
  for role in roles:
    model = getattr(config, role)
    if model.is_server and config.ask.template == 'plain':
      raise ValueError(
        f'{role}.backend={model.backend} needs --config.ask.template=chat: the '
        'plain format is that of the embedded models'
      )


def check_programs(tasks: Mapping[str, Sequence[Task]]) -> None:
  """Raises ValueError for a split without tasks, or a task without programs."""
  if empty := [split for split, part in tasks.items() if not part]:
    raise ValueError(
      f'the data has no task in {", ".join(empty)}: expected at least one in '
      'each split that this job reads'
    )
  for task in (task for part in tasks.values() for task in part):
    if not isinstance(task.checker, UnitTests):
      raise ValueError(
        f'{task.task_id} is checked by {type(task.checker).__name__}: this job '
        'edits prompts for programs and expects UnitTests; a rewriter learns '
        'from other tasks, too (experiments.mbpp_grpo, experiments.prewrite)'
      )


def load_models(config) -> tuple[Backend, Backend]:
  """Coder and rewriter; one model in memory if their settings are the same."""
  mesh = mesh_lib.from_text(config.mesh)
  coder = load_backend(config.coder, mesh)
  if config.rewriter == config.coder:
    return coder, coder
  return coder, load_backend(config.rewriter, mesh)


def prices(config, *roles: str) -> list[Price]:
  """Prices of the models on servers, as far as the run names them.

  Raises:
    ValueError: a model of these roles has no price, but a cap on dollars.
  """
  models = [getattr(config, role) for role in roles]
  found = [config.spend.price(one.model) for one in models if not one.is_free]
  return [price for price in found if price]


def open_ledger(config, workdir: pathlib.Path | None, *roles: str) -> Ledger:
  """The ledger of a run, kept in its workdir if it has one and there are caps.

  Each process of several has one, and the caps for itself.

  Raises:
    ValueError: a model of these roles has no price, but a cap on dollars.
  """
  prices(config, *roles)
  if workdir is None or not config.spend.is_limited:
    return Ledger(config.spend)
  process = jax.process_index()
  name = f'ledger_{process}.json' if process else 'ledger.json'
  return Ledger(config.spend, workdir / name)


def keeping_answers(config, workdir: pathlib.Path, *roles: str):
  """The settings with a cache in the workdir, if servers answer without one.

  Their answers are paid for: a run that goes on has to find them again.
  """
  if config.cache or all(getattr(config, role).is_free for role in roles):
    return config
  path = str(workdir / 'completions.sqlite')
  return dataclasses.replace(config, cache=path)


@contextlib.contextmanager
def pausing() -> Iterator[None]:
  """Says of a model that cannot be reached that the run may go on.

  A cap says so itself.
  """
  try:
    yield
  except CapExceeded:
    raise
  except BackendError as error:
    raise BackendError(
      f'paused: {error}; the same command goes on, and asks nothing twice that '
      'was answered'
    ) from error


def cached(
  model: Backend,
  role: str,
  given: BackendConfig,
  ledger: Ledger,
  path: str | os.PathLike[str] = '',
) -> CachedBackend:
  """A model with a cache, in memory if there is no path, and a meter."""
  meter = ledger.meter(role, model, free=given.is_free)
  return CachedBackend(model, path or IN_MEMORY, given.identity, meter=meter)


def make_line_up(
  config,
  ledger: Ledger,
  coder: Backend,
  rewriter: Backend,
  pool: Any,
  library: ExampleLibrary | None,
  reflections: Sequence[Reflection] = (),
) -> LineUp:
  """The line-up of a job, whose completions lie in the file of its config."""
  roles = {
    REWRITER: (rewriter, config.rewriter),
    CODER: (coder, config.coder),
  }
  backends = {
    role: cached(model, role, given, ledger, config.cache)
    for role, (model, given) in roles.items()
  }
  options = {'examples': library, 'reflections': reflections}
  return LineUp(backends, MemoPool(pool), config.ask, options)


def announce(config, tasks, played, coder, rewriter):
  """Says what is about to run and what it can show on the problems played."""
  sizes = ', '.join(f'{split} {len(part)}' for split, part in tasks.items())
  print(f'{config.data.name} under {config.data.protocol}: {sizes}')
  print(f'coder {coder.name}, rewriter {rewriter.name}')
  count = len(played)
  least = statistics.minimum_detectable_difference(count, _DISCORDANT)
  found = f'differences of {100 * least:.1f} points or more'
  if least > 1:
    found = f'no difference: {count} problems are too few'
  print(
    f'one run can tell {found} '
    f'(paired, if {_DISCORDANT:.0%} of problems are solved by one side only)'
  )


@contextlib.contextmanager
def open_pool(config: PoolConfig) -> Iterator[Any]:
  """The execution pool, closed at the end."""
  with config.open() as pool:
    print(f'programs run behind {pool.layers.describe()}')
    yield config.view(pool)


def about_programs(pool: PoolConfig) -> dict[str, str]:
  """What a header says of how programs are run."""
  return {'import header': 'on' if pool.import_header else 'off'}


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
