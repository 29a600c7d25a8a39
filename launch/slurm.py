"""Runs cells as the tasks of a Slurm job array, submitted by submitit.

A cell is one task on one node. When it is preempted or its time is up, submitit
has it queued again, and the same command resumes from its last checkpoint.
"""

from __future__ import annotations

import json
import os
import pathlib
import shlex
import signal
import subprocess
import time
import types
from collections.abc import Mapping, Sequence
from typing import Any

from launch import cells as cells_lib
from launch import tools
from launch.cells import Cell, State
from launch.local import signal_group
from promptrl_jax import extras

# As submitit names them; --slurm adds to these and overrides them.
DEFAULTS: Mapping[str, Any] = {
  'name': 'promptrl',
  'nodes': 1,
  'tasks_per_node': 1,
  'timeout_min': 24 * 60,
  # Seconds between the signal and the end, for the last step and its saving.
  'slurm_signal_delay_s': 120,
  # After the failure of a node, too.
  'slurm_additional_parameters': {'requeue': True},
}
# Runs of a cell that may end because their time is up.
_MOST_TIMEOUTS = 20
# For the command to save its state.
_GRACE_S = 90.0
_SIGNALLED_S = 30.0


class SlurmLauncher:
  """A Slurm job array; see `cells.Launcher`."""

  attached = False

  def __init__(
    self,
    workdir: pathlib.Path,
    parallel: int | None = None,
    options: Mapping[str, Any] = types.MappingProxyType({}),
  ):
    """Submits nothing yet.

    Args:
      workdir: of the sweep, on a file system that all nodes share.
      parallel: most tasks of the array that run at a time; None for all.
      options: parameters of submitit beside `DEFAULTS`.
    """
    self._folder = workdir / 'slurm'
    limit = {'slurm_array_parallelism': parallel} if parallel else {}
    self._parameters = {**DEFAULTS, **limit, **options}

  def submit(self, cells: Sequence[Cell]) -> None:
    tools.require('slurm', 'sbatch', 'squeue', 'srun')
    submitit = extras.require('submitit', 'slurm', '--engine=slurm')
    executor = submitit.AutoExecutor(
      self._folder, cluster='slurm', slurm_max_num_timeout=_MOST_TIMEOUTS
    )
    try:
      executor.update_parameters(**self._parameters)
    except NameError as error:  # What it raises for an unknown name.
      raise ValueError(f'--slurm: {error}') from error
    for cell in cells:
      cells_lib.record(cell)  # The folder of the log, before a task needs it.
    jobs = executor.submit_array(
      [Run(cell.command, str(cell.log)) for cell in cells]
    )
    for cell, job in zip(cells, jobs, strict=True):
      cells_lib.record(cell, job.job_id)

  def states(self, cells: Sequence[Cell]) -> dict[str, State]:
    jobs = {cell.name: cells_lib.recorded_job(cell) for cell in cells}
    queue = _queue() if any(jobs.values()) else {}
    return {cell.name: self._state(cell, jobs, queue) for cell in cells}

  def cancel(self, cells: Sequence[Cell]) -> None:
    states = self.states(cells)
    jobs = [
      cells_lib.recorded_job(cell)
      for cell in cells
      if states[cell.name].is_active
    ]
    if jobs:
      tools.run('scancel', *jobs)

  def describe(self, cells: Sequence[Cell]) -> str:
    commands = '\n'.join(shlex.join(cell.command) for cell in cells)
    parameters = json.dumps(self._parameters, indent=2)
    return (
      f'# submitit parameters of an array of {len(cells)}\n{parameters}\n'
      f'# one command for each task\n{commands}\n'
    )

  def _state(
    self, cell: Cell, jobs: Mapping[str, str], queue: Mapping[str, str]
  ) -> State:
    job = jobs[cell.name]
    if job in queue:
      waits = queue[job] in ('PENDING', 'CONFIGURING', 'REQUEUED')
      return State('pending' if waits else 'running')
    state = cells_lib.state_from_files(cell)
    if state.kind == 'failed' and not cell.log.is_file():
      return State('failed', f'job {job} did not start, see {self._folder}')
    return state


class Run:
  """What a task of the array does; submitit sends it to the node."""

  def __init__(self, command: Sequence[str], log: str):
    self._command = tuple(command)
    self._log = log
    self._process: subprocess.Popen[bytes] | None = None

  def __call__(self) -> None:
    """Runs the command to its end.

    Raises:
      RuntimeError: the command failed, so that Slurm counts the task as failed.
    """
    with open(self._log, 'ab') as log:
      # The command is told of a preemption by `checkpoint`.
      self._process = cells_lib.start(self._command, log, _ignore_preemption)
    status = self._process.wait()
    if status < 0:
      # Slurm signals every process of a task. If the task is queued again, the
      # handler of submitit is called meanwhile, and does not return.
      time.sleep(_SIGNALLED_S)
    if status:
      raise RuntimeError(f'{self._command} ended with status {status}')

  def checkpoint(self) -> Any:
    """Ends the command before the task is queued again.

    Submitit calls this in a signal handler, while the process is waited for.
    """
    if self._process is not None:
      signal_group(self._process.pid, signal.SIGINT)
      deadline = time.monotonic() + _GRACE_S
      while not _has_ended(self._process.pid) and time.monotonic() < deadline:
        time.sleep(0.1)
      signal_group(self._process.pid, signal.SIGKILL)
    helpers = extras.require('submitit.helpers', 'slurm', '--engine=slurm')
    return helpers.DelayedSubmission(Run(self._command, self._log))


def parse(options: Sequence[str]) -> dict[str, Any]:
  """Parses parameters of submitit, `NAME=VALUE`; whole numbers become numbers.

  Raises:
    ValueError: one has no value.
  """
  parsed: dict[str, Any] = {}
  for option in options:
    key, separator, value = option.partition('=')
    if not key or not separator:
      raise ValueError(f'--slurm={option}: expected NAME=VALUE')
    parsed[key] = int(value) if value.isdecimal() else value
  return parsed


def _ignore_preemption() -> None:
  name = os.environ.get('SUBMITIT_PREEMPT_SIGNAL', 'USR2')
  signal.signal(signal.Signals[f'SIG{name}'], signal.SIG_IGN)


def _has_ended(process: int) -> bool:
  options = os.WEXITED | os.WNOWAIT | os.WNOHANG
  return os.waitid(os.P_PID, process, options) is not None


def _queue() -> dict[str, str]:
  """Returns the states of this user's jobs and tasks by their ids.

  Accounting (`sacct`) is not asked: not every cluster has it, and it may lag
  behind.
  """
  tools.require('slurm', 'squeue')
  text = tools.run('squeue', '--me', '--noheader', '--array', '--format=%i %T')
  return dict(line.split() for line in text.splitlines() if line.strip())
