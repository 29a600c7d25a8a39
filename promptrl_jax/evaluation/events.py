"""What a comparison has done so far: one stream, which all that show it read.

  Stream.add ──> events.jsonl   EventLog   other programs, and resumed runs
             ──> progress bar   Progress   cells, and the best one so far
             ──> TensorBoard    Curves     a curve over budgets per strategy

There is an event when the run starts, ends a cell, pauses, stops or is done.
Readers are given the events of earlier processes first, so that a run that goes
on shows what an uninterrupted one would.
"""

from __future__ import annotations

import datetime
import json
import os
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import tqdm

from promptrl_jax.evaluation.cells import Cell
from promptrl_jax.training.metrics import MetricWriter

KINDS = ('start', 'cell', 'paused', 'stopped', 'done')
Event = Mapping[str, Any]
Key = tuple[str, str, int]  # protocol, strategy, budget
# Means per problem that an event of a cell holds.
COSTS = ('calls', 'prompt_tokens', 'completion_tokens')


def path(workdir: pathlib.Path) -> pathlib.Path:
  return workdir / 'events.jsonl'


def read(path: pathlib.Path) -> list[dict[str, Any]]:
  """Returns the events; a last line that is not whole is left out."""
  if not path.exists():
    return []
  lines = path.read_text(encoding='utf-8').splitlines(keepends=True)
  return [json.loads(line) for line in lines if line.endswith('\n')]


def cells(events: Iterable[Event]) -> dict[Key, Event]:
  """Returns the last event of each cell."""
  return {_key(e): e for e in events if e['event'] == 'cell'}


def _key(event: Event) -> Key:
  return event['protocol'], event['strategy'], event['budget']


class Reader(Protocol):
  """What follows a stream."""

  def add(self, event: Event) -> None: ...

  def close(self) -> None: ...


class Stream:
  """Gives each event to every reader, the file first.

  Attributes:
    cells: the cells that the stream has told of, in earlier processes too.
  """

  def __init__(self, *readers: Reader, earlier: Iterable[Event] = ()):
    self._readers = readers
    self.cells = set(cells(earlier))

  def add(self, kind: str, **fields: Any) -> None:
    """Adds an event with the time of day in UTC.

    Raises:
      ValueError: there is no such kind.
    """
    if kind not in KINDS:
      raise ValueError(f'event {kind!r}: expected one of {", ".join(KINDS)}')
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec='seconds')
    event = {'time': now, 'event': kind, **fields}
    if kind == 'cell':
      self.cells.add(_key(event))
    for reader in self._readers:
      reader.add(event)

  def add_cell(
    self, cell: Cell, seconds: float | None, dollars: float | None
  ) -> None:
    """Adds the event of a cell that is complete.

    Args:
      cell: the cell.
      seconds: wall time of playing it; None: unknown.
      dollars: price of its model calls; None: unknown.
    """
    self.add(
      'cell',
      strategy=cell.strategy,
      budget=cell.budget,
      protocol=cell.protocol,
      **{name: float(getattr(cell, name).mean()) for name in COSTS},
      seconds=None if seconds is None else round(seconds, 3),
      dollars=dollars,
      **{'pass': float(cell.passed.mean())},
    )

  def close(self) -> None:
    for reader in self._readers:
      reader.close()

  def __enter__(self) -> Stream:
    return self

  def __exit__(self, *unused: object) -> None:
    self.close()


def open_stream(workdir: pathlib.Path) -> Stream:
  """The stream of a run, with its file, progress bar and curves."""
  earlier = read(path(workdir))
  return Stream(
    EventLog(path(workdir)),
    Progress(earlier),
    Curves(earlier, workdir / 'curves'),
    earlier=earlier,
  )


class EventLog:
  """Appends events to a file, each on the disk before the call returns."""

  def __init__(self, path: pathlib.Path):
    path.parent.mkdir(parents=True, exist_ok=True)
    _drop_partial_line(path)
    self._file = path.open('a', encoding='utf-8')

  def add(self, event: Event) -> None:
    self._file.write(json.dumps(event) + '\n')
    self._file.flush()
    os.fsync(self._file.fileno())

  def close(self) -> None:
    self._file.close()


class Progress:
  """A progress bar of cells, with the best one at the budget that is played."""

  def __init__(self, earlier: Iterable[Event] = ()):
    self._cells = cells(earlier)
    self._bar = tqdm.tqdm(desc='compare', unit='cell', initial=len(self._cells))

  def add(self, event: Event) -> None:
    if event['event'] == 'start':
      self._bar.total = event['cells']
    if event['event'] == 'cell':
      self._cells[_key(event)] = event
      self._bar.set_postfix_str(self.best(event['budget']), refresh=False)
      self._bar.n = len(self._cells)
    self._bar.refresh()

  def best(self, budget: int) -> str:
    """The best strategy at a budget, with its pass@1."""
    played = [e for e in self._cells.values() if e['budget'] == budget]
    first = max(played, key=lambda event: event['pass'])
    return f'B={budget} best {first["strategy"]} {first["pass"]:.1%}'

  def close(self) -> None:
    self._bar.close()


class Curves:
  """TensorBoard: pass@1, calls and tokens over budgets, a run per strategy."""

  def __init__(self, earlier: Iterable[Event], folder: pathlib.Path):
    self._folder = folder
    self._curves: dict[str, dict[int, Event]] = {}
    for event in cells(earlier).values():
      self._take(event)
    for name in self._curves:
      self._write(name)

  def add(self, event: Event) -> None:
    if event['event'] == 'cell':
      self._write(self._take(event))

  def _take(self, event: Event) -> str:
    """Keeps the event of a cell; returns the name of its curve."""
    name = f'{event["protocol"]}/{event["strategy"]}'
    self._curves.setdefault(name, {})[event['budget']] = event
    return name

  def _write(self, name: str) -> None:
    """Writes a curve whole: a cell may be played after one of a larger B."""
    folder = self._folder / name
    # Files of the same second have no order: only one may hold the curve.
    for written in folder.glob('events.out.*'):
      written.unlink()
    with MetricWriter(folder) as writer:
      for budget, event in sorted(self._curves[name].items()):
        # Files of earlier versions hold no tokens.
        costs = {f'eval/{c}': event[c] for c in COSTS if c in event}
        writer.write_scalars(budget, {'eval/pass_at_1': event['pass'], **costs})

  def close(self) -> None:
    """Nothing is open between two cells."""


def _drop_partial_line(path: pathlib.Path) -> None:
  """Removes what a killed process left of its last line."""
  if not path.exists():
    return
  content = path.read_bytes()
  whole = content.rfind(b'\n') + 1
  if whole < len(content):
    os.truncate(path, whole)
