"""Cells of a sweep, and what the engines that run them have in common.

A cell is a command and the workdir that it fills. Results are the files there,
never an object that is handed back: a cell is done when its workdir holds
`results.json`, whichever engine ran it and whoever looks. Everything that an
engine keeps about a cell lies in the folder `launch` of its workdir.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any, Protocol

from promptrl_jax.files import write_atomically

# Of each cell: otherwise, what it prints for people would reach its log after
# the error that ended it.
ENVIRONMENT = {'PYTHONUNBUFFERED': '1'}
# Bytes of a log in which its last line is looked for.
_TAIL = 4096


@dataclasses.dataclass(frozen=True)
class Cell:
  """One run of a sweep.

  Attributes:
    name: of the cell, and of its folder in the workdir of the sweep.
    workdir: what the command fills.
    command: program and arguments.
    deviations: settings that deviate from those of the config file.
    settings: values of all settings that the sweep varies.
  """

  name: str
  workdir: pathlib.Path
  command: tuple[str, ...]
  deviations: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)

  @property
  def folder(self) -> pathlib.Path:
    """What engines keep about the cell."""
    return self.workdir / 'launch'

  @property
  def log(self) -> pathlib.Path:
    """What the command prints; each submission appends to it."""
    return self.folder / 'log.txt'

  @property
  def results(self) -> pathlib.Path:
    return self.workdir / 'results.json'


@dataclasses.dataclass(frozen=True)
class State:
  """How far a cell is.

  Attributes:
    kind: `missing` (not submitted), `pending`, `running`, `done` or `failed`.
    detail: of a failure, the last line of the log.
  """

  kind: str
  detail: str = ''

  @property
  def is_active(self) -> bool:
    return self.kind in ('pending', 'running')

  def __str__(self) -> str:
    return f'{self.kind}: {self.detail}' if self.detail else self.kind


class Launcher(Protocol):
  """An engine that runs cells.

  Attributes:
    attached: whether its cells end with this process.
  """

  attached: bool

  def submit(self, cells: Sequence[Cell]) -> None:
    """Has cells run that are missing or have failed; returns at once."""
    ...

  def states(self, cells: Sequence[Cell]) -> dict[str, State]:
    """Returns the state of each cell by its name, whoever submitted it."""
    ...

  def cancel(self, cells: Sequence[Cell]) -> None:
    """Ends cells that are pending or running; leaves the others alone."""
    ...

  def describe(self, cells: Sequence[Cell]) -> str:
    """Returns what `submit` would hand to the engine."""
    ...


def start(
  command: Sequence[str],
  log: IO[bytes],
  preexec_fn: Callable[[], None] | None = None,
) -> subprocess.Popen[bytes]:
  """Starts the command of a cell, a process group whose output is logged.

  Args:
    command: program and arguments.
    log: open file.
    preexec_fn: called in the new process, as `subprocess.Popen` does.

  Raises:
    OSError: the program cannot be started.
  """
  return subprocess.Popen(
    command,
    stdin=subprocess.DEVNULL,
    stdout=log,
    stderr=subprocess.STDOUT,
    env={**os.environ, **ENVIRONMENT},
    process_group=0,
    preexec_fn=preexec_fn,
  )


def state_from_files(cell: Cell) -> State:
  """Returns the state of a cell that is neither pending nor running."""
  if cell.results.is_file():
    return State('done')
  if cell.log.is_file():
    return State('failed', last_line(cell.log) or f'{cell.log} is empty')
  if _record(cell).is_file():
    return State('failed', f'it ended before there was {cell.log}')
  return State('missing')


def last_line(log: pathlib.Path) -> str:
  """Returns the last line of a file that is not blank, or an empty string.

  A progress bar, which returns to the start of its line, is one line for each
  time that it was drawn.
  """
  with log.open('rb') as file:
    file.seek(max(0, log.stat().st_size - _TAIL))
    lines = file.read().decode(errors='replace').splitlines()
  return next((line.strip() for line in reversed(lines) if line.strip()), '')


def record(cell: Cell, job: str = '') -> None:
  """Notes in the workdir of a cell what was submitted, and the job's id."""
  content = {'command': list(cell.command), 'job': job}
  write_atomically(
    _record(cell), (json.dumps(content, indent=2) + '\n').encode()
  )


def recorded_job(cell: Cell) -> str:
  """Returns the id that an engine gave to a cell, or an empty string."""
  return _read_record(cell).get('job', '')


def check_same(cells: Sequence[Cell]) -> None:
  """Raises ValueError if a workdir was filled by another command.

  The program, which is the path of an interpreter, may be another one.
  """
  for cell in cells:
    before = _read_record(cell).get('command', cell.command)
    if list(before[1:]) != list(cell.command[1:]):
      raise ValueError(
        f'{cell.workdir} belongs to another command, '
        f'{" ".join(before[1:])}: expected {" ".join(cell.command[1:])}; use '
        'that command or another --workdir'
      )


def _record(cell: Cell) -> pathlib.Path:
  return cell.folder / 'cell.json'


def _read_record(cell: Cell) -> dict[str, Any]:
  try:
    return json.loads(_record(cell).read_text(encoding='utf-8'))
  except FileNotFoundError:
    return {}
