"""Metrics of a run: one JSON line per row, and the same for TensorBoard.

A row of step s belongs to the update that starts from `state.step == s`, and is
written before the checkpoint of step s + 1. A run that resumes at step k then
removes the rows with step >= k, and its file becomes that of a run that was
never interrupted.
"""

# Protobuf modules fill in their names on import, where no checker sees them.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import json
import logging
import math
import os
import pathlib
import time
from collections.abc import Mapping
from typing import Any

from tensorboard.compat.proto import event_pb2, summary_pb2
from tensorboard.summary.writer.event_file_writer import EventFileWriter

ROOMS = ('train', 'rollout', 'reward', 'eval', 'budget', 'time')
# Where two learners share a run, a name starts with that of the learner.
PARTS = ('controller', 'rewriter')


class MetricWriter:
  """Writes `metrics.jsonl` and TensorBoard events into one directory.

  In a run of several processes only process 0 has a writer.
  """

  def __init__(
    self,
    workdir: str | os.PathLike[str],
    *,
    resume_step: int = 0,
  ):
    """Opens the files.

    Args:
      workdir: created if missing.
      resume_step: the restored `state.step`, 0 to start over: older rows from
        this step on are removed.

    Raises:
      ValueError: a line of the existing file is no JSON object with a step.
    """
    directory = pathlib.Path(workdir)
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / 'metrics.jsonl'
    _truncate(path, resume_step)
    self._file = path.open('a', encoding='utf-8')
    self._events = EventFileWriter(str(directory))
    self._warned: set[str] = set()
    # Tells TensorBoard to drop events of earlier files from this step on.
    start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
    self._add_event(resume_step, session_log=start)

  def write_scalars(self, step: int, scalars: Mapping[str, Any]) -> None:
    """Writes one row; the module's docstring says what step it has.

    JSON has no NaN or infinity: they become null, with one warning per name.
    The writer does not raise on them, because the run that produced them can
    then still save and be examined; TensorBoard gets them as they are.

    Raises:
      ValueError: a name does not start with one of `ROOMS` and a slash, after
        one of `PARTS` and a slash or not.
    """
    row: dict[str, Any] = {'step': int(step)}
    summary = summary_pb2.Summary()
    for name, value in scalars.items():
      _check_name(name)
      value = float(value)
      summary.value.add(tag=name, simple_value=value)
      row[name] = value if math.isfinite(value) else None
      if row[name] is None and name not in self._warned:
        self._warned.add(name)
        logging.warning('%s is %s at step %d', name, value, step)
    self._file.write(json.dumps(row, allow_nan=False) + '\n')
    self._file.flush()
    self._add_event(step, summary=summary)

  def close(self) -> None:
    self._file.close()
    self._events.close()

  def __enter__(self) -> MetricWriter:
    return self

  def __exit__(self, *unused: object) -> None:
    self.close()

  def _add_event(self, step: int, **content: Any) -> None:
    event = event_pb2.Event(step=int(step), wall_time=time.time(), **content)
    self._events.add_event(event)


def _check_name(name: str) -> None:
  part, _, rest = name.partition('/')
  room, _, last = (rest if part in PARTS else name).partition('/')
  if room not in ROOMS or not last:
    raise ValueError(
      f'metric {name!r} must be one of {", ".join(ROOMS)}, a slash and a name'
    )


def _truncate(path: pathlib.Path, step: int) -> None:
  """Removes rows from `step` on, and a last line that was cut off."""
  if not path.exists():
    return
  lines = path.read_text(encoding='utf-8').splitlines(keepends=True)
  if lines and not lines[-1].endswith('\n'):
    lines.pop()
  kept = []
  for number, line in enumerate(lines, start=1):
    try:
      if json.loads(line)['step'] < step:
        kept.append(line)
    except (ValueError, TypeError, KeyError) as error:
      raise ValueError(
        f'{path}:{number} is no JSON object with a step: {line[:80]!r}; repair '
        'or remove the file'
      ) from error
  # Replaced in one go, so that an interruption here loses nothing either.
  temporary = path.with_suffix('.jsonl.tmp')
  temporary.write_text(''.join(kept), encoding='utf-8')
  os.replace(temporary, path)
