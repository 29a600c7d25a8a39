"""Runs one job on several processes: start, barriers and shutdown.

Every process runs the same program on its own rows; see `exchange.py`.

  with distributed.session(config):
    ...

A run of one process needs no session: all other functions work without one.
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

# JAX has no public API for a barrier with a timeout, nor for leaving a run
# without waiting for the other processes.
from jax._src.distributed import global_state
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

Args = ParamSpec('Args')
Result = TypeVar('Result')

# Ports between those of well-known services and the ephemeral ports of Linux,
# which start at 32768.
_PORTS = range(20_000, 30_000)
# At shutdown, processes wait this long for process 0 to write its report. The
# heartbeat detects processes that died in the meantime.
_SHUTDOWN_S = 24 * 3600
# Process 0 lives this long after an error: once it has exited, the runtime
# aborts the other processes, even those that are about to report an error.
_LINGER_S = 3.0
_ADDRESS = re.compile(r'\S+:\d+')
_barriers = itertools.count()


@dataclasses.dataclass(frozen=True)
class DistributedConfig:
  """Address of the coordinator, number of processes and index of this one.

  Attributes:
    coordinator: `host:port` on which process 0 listens; all processes must be
      able to reach it.
    heartbeat_s: a process that sends no heartbeat for this long counts as dead.
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
  """Reads the config from the environment of a Slurm task, as `srun` sets it.

  Process 0 runs on the first node of the step. The port is derived from the
  numbers of job and step, so that concurrent steps use different ports.

  Raises:
    ValueError: a variable is missing or not a number, so `srun` did not start
      this process.
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
  # `rack2-node003` is the first node of `rack2-node[003,007],login1`.
  first = re.sub(r'\[([^\],-]+)[^\]]*\]', r'\1', nodes).split(',')[0]
  offset = 7 * numbers['SLURM_JOB_ID'] + numbers['SLURM_STEP_ID']
  return DistributedConfig(
    coordinator=f'{first}:{_PORTS[offset % len(_PORTS)]}',
    processes=numbers['SLURM_STEP_NUM_TASKS'],
    process=numbers['SLURM_PROCID'],
  )


def initialize(config: DistributedConfig) -> None:
  """Joins the run; call this before JAX is first used.

  Raises:
    TimeoutError: not all processes joined in time.
    RuntimeError: JAX was used before, or this process has already joined.
  """
  # Collectives between CPU processes; accelerators have their own.
  jax.config.update('jax_cpu_collectives_implementation', 'gloo')
  errors: list[BaseException] = []

  def join() -> None:
    try:
      jax.distributed.initialize(
        config.coordinator,
        config.processes,
        config.process,
        # JAX must not guess settings from the environment.
        cluster_detection_method='deactivate',
        initialization_timeout=round(2 * config.timeout_s + 60),
        heartbeat_timeout_seconds=round(config.heartbeat_s),
        shutdown_timeout_seconds=_SHUTDOWN_S,
      )
    except BaseException as error:
      errors.append(error)

  # The runtime's own timeout kills the process without a Python exception, so
  # this function uses a shorter one.
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
  if errors:
    raise errors[0]
  if jax.process_count() != config.processes:
    raise RuntimeError(
      f'{config.processes} processes have met, but the backend '
      f'{jax.default_backend()!r} sees {jax.process_count()}: the installed '
      'jaxlib cannot join these devices'
    )
  _connect(config.timeout_s)


def _connect(timeout_s: float) -> None:
  """Runs the first collective operation on all devices.

  Gloo connects devices at their first collective operation and fails if one
  process is 30 s later than another. That can happen later in a run, while one
  process still loads a model or executes programs.
  """
  mesh = Mesh(np.asarray(jax.devices()), ('all',))
  ones = jax.make_array_from_callback(
    (mesh.size,), NamedSharding(mesh, P('all')), lambda _: np.ones(1, np.int32)
  )
  compiled_sum = jax.jit(lambda x: x.sum()).lower(ones).compile()
  barrier('the first exchange', timeout_s)
  compiled_sum(ones).block_until_ready()
  multihost_utils.process_allgather(np.ones(1, np.int32))


@contextlib.contextmanager
def session(config: DistributedConfig | None) -> Iterator[None]:
  """Joins a run on entry and shuts it down on exit.

  On success, the exit waits until all processes are done. After an error, the
  process leaves at once: the next collective operation of the others fails, or
  their launcher ends them. Process 0 then lives for a few more seconds, so that
  all processes can report an error that occurs on all of them.
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
  """Leaves the run without waiting for the other processes."""
  for name in ('client', 'service', 'preemption_sync_manager'):
    part = getattr(global_state, name)
    setattr(global_state, name, None)
    # The destructors of these objects wait for the other processes and then
    # abort, so the objects must never be freed.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(part))


def is_first() -> bool:
  """Returns whether this is process 0, which writes files and reports."""
  return jax.process_index() == 0


def first_only(
  function: Callable[Args, Result],
) -> Callable[Args, Result | None]:
  """Wraps `function` to run on process 0 only: `first_only(print)(text)`."""

  @functools.wraps(function)
  def call(*args: Args.args, **kwargs: Args.kwargs) -> Result | None:
    return function(*args, **kwargs) if is_first() else None

  return call


def barrier(name: str, timeout_s: float) -> None:
  """Waits until every process has reached this barrier."""
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
  """Checks that all processes hold the same text, such as their config.

  Raises:
    ValueError: the texts differ; every process raises the error.
  """
  checksum = np.uint32(zlib.crc32(value.encode()))
  checksums = np.ravel(multihost_utils.process_allgather(checksum))
  if (checksums != checksums[0]).any():
    odd = np.flatnonzero(checksums != checksums[0]).tolist()
    raise ValueError(
      f'{what} of process {", ".join(map(str, odd))} differs from that of '
      f'process 0 (here: {value[:200]!r}): start all with the same command, '
      'files and versions'
    )
