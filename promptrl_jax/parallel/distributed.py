"""One run on several processes: joining, waiting for each other, and parting.

Every process runs the same program on its own rows; see `exchange.py`.

  with distributed.session(config):
    ...

A run of one process needs no session: all other functions work without.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import dataclasses
import functools
import itertools
import os
import re
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ParamSpec, TypeVar

import jax
import numpy as np

# The barrier with a time-out has no public name, nor has what parts quietly.
from jax._src.distributed import global_state
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

Args = ParamSpec('Args')
Result = TypeVar('Result')

# Ports that neither well-known services nor Linux' own choice (32768 up) take.
_PORTS = range(20_000, 30_000)
# Who is done first waits for process 0 to write its report; a process that
# died meanwhile is noticed by its missing heart beat.
_PART_S = 24 * 3600
# After an error: the runtime aborts who is still there when process 0 is gone,
# also one that is about to tell the same error.
_LINGER_S = 3.0
_ADDRESS = re.compile(r'\S+:\d+')
_barriers = itertools.count()


@dataclasses.dataclass(frozen=True)
class DistributedConfig:
  """Which process this is, of how many.

  Attributes:
    coordinator: `host:port` on which process 0 listens, reached by all.
    processes: how many there are.
    process: which one this is, from 0.
    timeout_s: how long all others are waited for at the start.
    heartbeat_s: after so long a silence a process is taken for dead.
  """

  coordinator: str
  processes: int
  process: int
  timeout_s: float = 300.0
  heartbeat_s: float = 100.0

  def __post_init__(self):
    if not _ADDRESS.fullmatch(self.coordinator):
      raise ValueError(
        f'coordinator {self.coordinator!r}: expected host:port of process 0'
      )
    if self.processes < 1 or not 0 <= self.process < self.processes:
      raise ValueError(
        f'process {self.process} of {self.processes}: expected processes of at '
        'least 1, and a process from 0 to processes - 1'
      )
    for name in ('timeout_s', 'heartbeat_s'):
      # The runtime counts in whole seconds.
      if getattr(self, name) < 1:
        raise ValueError(
          f'{name} must be at least 1 second, got {getattr(self, name)}'
        )


def from_slurm(environ: Mapping[str, str] = os.environ) -> DistributedConfig:
  """The config of a task of a Slurm step (what `srun` starts).

  Process 0 runs on the first node of the step. The port follows from the
  numbers of job and step, so that steps side by side do not meet.

  Raises:
    ValueError: a variable is missing or no number: this is no task of `srun`.
  """
  numbers = {}
  for name in (
    'SLURM_JOB_ID',
    'SLURM_STEP_ID',
    'SLURM_STEP_NUM_TASKS',
    'SLURM_PROCID',
  ):
    text = environ.get(name, '')
    if not text.isdecimal():
      raise ValueError(
        f'{name}={text!r}: expected a number, as srun sets it in each task; '
        'start the command with srun (launch/slurm.sbatch), or say '
        '--distributed=flags'
      )
    numbers[name] = int(text)
  nodes = environ.get('SLURM_STEP_NODELIST', '')
  if not nodes:
    raise ValueError('SLURM_STEP_NODELIST is not set: expected a list of nodes')
  at = 7 * numbers['SLURM_JOB_ID'] + numbers['SLURM_STEP_ID']
  return DistributedConfig(
    coordinator=f'{_first_node(nodes)}:{_PORTS[at % len(_PORTS)]}',
    processes=numbers['SLURM_STEP_NUM_TASKS'],
    process=numbers['SLURM_PROCID'],
  )


def _first_node(nodes: str) -> str:
  """`rack2-node[003,007-015],login1` -> `rack2-node003`."""
  return re.sub(r'\[([^\],-]+)[^\]]*\]', r'\1', nodes).split(',')[0]


def initialize(config: DistributedConfig) -> None:
  """Joins the run; call before JAX is first used.

  Raises:
    TimeoutError: not all processes were there in time.
    RuntimeError: JAX was used before, or joined before.
  """
  # What simulates a cluster on CPUs; accelerators bring their own.
  jax.config.update('jax_cpu_collectives_implementation', 'gloo')
  failed: list[BaseException] = []

  def join() -> None:
    try:
      jax.distributed.initialize(
        config.coordinator,
        config.processes,
        config.process,
        # Nothing is guessed from the environment.
        cluster_detection_method='deactivate',
        initialization_timeout=round(2 * config.timeout_s + 60),
        heartbeat_timeout_seconds=round(config.heartbeat_s),
        shutdown_timeout_seconds=_PART_S,
      )
    except BaseException as error:
      failed.append(error)

  # The runtime ends the process without a word of Python when its own time is
  # up; ours is up first.
  thread = threading.Thread(target=join, daemon=True)
  thread.start()
  thread.join(config.timeout_s)
  if thread.is_alive():
    _leave()
    raise TimeoutError(
      f'process {config.process} of {config.processes}: not all processes met '
      f'at {config.coordinator} within {config.timeout_s:g} s; check that all '
      'were started, that each has its own number, that they reach this '
      'address and that no proxy variable is in the way'
    )
  if failed:
    raise failed[0]
  if jax.process_count() != config.processes:
    raise RuntimeError(
      f'{config.processes} processes have met, but the backend '
      f'{jax.default_backend()!r} sees {jax.process_count()}: the installed '
      'jaxlib cannot join these devices'
    )
  _connect(config.timeout_s)


def _connect(timeout_s: float) -> None:
  """Makes the first exchange between all devices now.

  Gloo connects devices when they first exchange something, and fails where one
  process comes 30 s after another: later on they may, as one still loads a
  model or runs programs.
  """
  mesh = Mesh(np.asarray(jax.devices()), ('all',))
  ones = jax.make_array_from_callback(
    (mesh.size,), NamedSharding(mesh, P('all')), lambda _: np.ones(1, np.int32)
  )
  total = jax.jit(lambda x: x.sum()).lower(ones).compile()
  barrier('the first exchange', timeout_s)
  total(ones).block_until_ready()
  multihost_utils.process_allgather(np.ones(1, np.int32))


@contextlib.contextmanager
def session(config: DistributedConfig | None) -> Iterator[None]:
  """Joins a run and parts from it: `with session(config):` around all of it.

  Ends when all processes are done. An error leaves at once, without waiting for
  the others: their next collective operation fails or their launcher ends them.
  Process 0 tells its error and stays a moment, so that an error that all find
  is told by all.

  Args:
    config: None for a run of one process: nothing is done.
  """
  if config is None:
    yield
    return
  initialize(config)
  try:
    yield
  except BaseException:
    _leave()
    if config.process == 0:
      atexit.register(time.sleep, _LINGER_S)
    raise
  jax.distributed.shutdown()


def _leave() -> None:
  """Drops out of the run without telling anyone, so that nobody waits."""
  for name in ('client', 'service', 'preemption_sync_manager'):
    part = getattr(global_state, name)
    setattr(global_state, name, None)
    # On its end each would wait for the others, and then abort: it must live
    # until the process is gone.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(part))


def is_first() -> bool:
  """Whether this process writes what is written once."""
  return jax.process_index() == 0


def first_only(
  function: Callable[Args, Result],
) -> Callable[Args, Result | None]:
  """`function` on process 0, nothing elsewhere: `first_only(print)(text)`."""

  @functools.wraps(function)
  def call(*args: Args.args, **kwargs: Args.kwargs) -> Result | None:
    return function(*args, **kwargs) if is_first() else None

  return call


def barrier(name: str, timeout_s: float) -> None:
  """Waits until every process has come here.

  Args:
    name: what is waited for, told when it does not happen; the same everywhere.
    timeout_s: for how long.

  Raises:
    TimeoutError: not all came.
  """
  client: Any = global_state.client
  if client is None:
    return
  try:
    client.wait_at_barrier(
      f'promptrl/{next(_barriers)}/{name}',
      timeout_in_ms=max(1, round(1000 * timeout_s)),
    )
  except jax.errors.JaxRuntimeError as error:
    if 'DEADLINE_EXCEEDED' not in str(error):
      raise
    raise TimeoutError(
      f'process {jax.process_index()} of {jax.process_count()} waited '
      f'{timeout_s:g} s at {name!r} for the others: {error}'
    ) from error


def require_same(value: str, what: str) -> None:
  """Checks that all processes hold the same text, e.g. their config.

  Raises:
    ValueError: they do not; every process raises.
  """
  mine = np.uint32(zlib.crc32(value.encode()))
  found = np.ravel(multihost_utils.process_allgather(mine))
  if (found != found[0]).any():
    odd = np.flatnonzero(found != found[0]).tolist()
    raise ValueError(
      f'{what} of process {", ".join(map(str, odd))} differs from that of '
      f'process 0 (here: {value[:200]!r}): start all with the same command, '
      'files and versions'
    )
