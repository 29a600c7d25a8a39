"""What a comparison has done so far, as lines that others can follow.

`events.jsonl` gets a line when the run starts, ends a cell, pauses, stops or is
done, so that other programs can follow the run while it goes on.
"""

from __future__ import annotations

import datetime
import json
import os
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any

from promptrl_jax.training.metrics import MetricWriter

KINDS = ('start', 'cell', 'paused', 'stopped', 'done')


def path(workdir: pathlib.Path) -> pathlib.Path:
  return workdir / 'events.jsonl'


class EventLog:
  """Appends events to a file, each on the disk before the call returns."""

  def __init__(self, path: pathlib.Path):
    path.parent.mkdir(parents=True, exist_ok=True)
    _drop_partial_line(path)
    self._file = path.open('a', encoding='utf-8')

  def add(self, kind: str, **fields: Any) -> None:
    """Adds an event with the time of day in UTC.

    Raises:
      ValueError: there is no such kind.
    """
    if kind not in KINDS:
      raise ValueError(f'event {kind!r}: expected one of {", ".join(KINDS)}')
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec='seconds')
    self._file.write(json.dumps({'time': now, 'event': kind, **fields}) + '\n')
    self._file.flush()
    os.fsync(self._file.fileno())

  def close(self) -> None:
    self._file.close()


def read(path: pathlib.Path) -> list[dict[str, Any]]:
  """Returns the events; a last line that is not whole is left out."""
  lines = path.read_text(encoding='utf-8').splitlines(keepends=True)
  return [json.loads(line) for line in lines if line.endswith('\n')]


def to_tensorboard(
  events: Iterable[Mapping[str, Any]], folder: pathlib.Path
) -> None:
  """Writes pass@1 and calls against the budget, a curve for each strategy."""
  curves: dict[str, dict[int, Mapping[str, Any]]] = {}
  for event in events:
    if event['event'] == 'cell':
      name = f'{event["protocol"]}/{event["strategy"]}'
      curves.setdefault(name, {})[event['budget']] = event
  for name, by_budget in curves.items():
    writer = MetricWriter(folder / name)
    for budget in sorted(by_budget):
      event = by_budget[budget]
      writer.write_scalars(
        budget,
        {'eval/pass_at_1': event['pass'], 'eval/calls': event['calls']},
      )
    writer.close()


def _drop_partial_line(path: pathlib.Path) -> None:
  """Removes what a killed process left of its last line."""
  if not path.exists():
    return
  content = path.read_bytes()
  whole = content.rfind(b'\n') + 1
  if whole < len(content):
    os.truncate(path, whole)
