"""The tasks that a config asks for; no flags, so that experiments share it."""

from __future__ import annotations

import logging
import pathlib

from promptrl_jax.tasks import mbpp, overlaps, splits
from promptrl_jax.tasks.minicode import suite


def load_tasks(data):
  """Loads the tasks of the three splits and checks them for overlaps.

  Raises:
    ValueError: a setting is not known, or two splits share a task.
    DataError: the data is missing or malformed.
  """
  if data.protocol not in splits.PROTOCOLS:
    raise ValueError(
      f'data.protocol={data.protocol!r}: expected one of {splits.PROTOCOLS}'
    )
  limits = {
    'train': data.train_limit,
    'validation': data.validation_limit,
    'test': data.test_limit,
  }
  parts = {split: _load_split(data, split) for split in limits}
  _report_overlaps(data, parts)
  if data.train_tasks:
    parts['train'] = chosen(parts['train'], data.train_tasks)
  return {
    split: parts[split][:limit] if limit else parts[split]
    for split, limit in limits.items()
  }


def _load_split(data, split):
  if data.name == 'minicode':
    return suite.load(split)
  if data.name == 'mbpp':
    return mbpp.load(split, data.path or None)
  raise ValueError(f'data.name={data.name!r}: expected minicode or mbpp')


def _report_overlaps(data, parts):
  """Raises if splits share a task, and logs tasks that are nearly the same."""
  if data.name == 'minicode':
    few_shots, identify = (), suite.STATEMENTS_IDENTIFY_TASKS
  else:
    few_shots = mbpp.few_shots(data.path or None)
    identify = mbpp.STATEMENTS_IDENTIFY_TASKS
  report = overlaps.check_no_leak({'few-shots': few_shots, **parts}, identify)
  if report.overlaps:
    logging.getLogger(__name__).warning(
      '%s: %d pairs of tasks of different splits are worded alike; the command '
      '`python -m promptrl_jax.tools.leaks --data=%s --path=%s` lists them',
      data.name,
      len(report.overlaps),
      data.name,
      data.path,
    )


def chosen(tasks, path):
  """The tasks whose ids a file names, one on each line.

  Raises:
    ValueError: a task is not there, or none is named.
  """
  ids = pathlib.Path(path).read_text(encoding='utf-8').split()
  unknown = set(ids) - {task.task_id for task in tasks}
  if unknown or not ids:
    raise ValueError(
      f'data.train_tasks={path}: expected ids of training problems, one '
      f'on each line, got {f"{min(unknown)!r}" if unknown else "an empty file"}'
    )
  return tuple(task for task in tasks if task.task_id in set(ids))


def describe(data):
  """Name and hash of the data set, for the header of a report."""
  if data.name == 'minicode':
    return f'minicode {suite.digest()}'
  return f'mbpp {mbpp.digest(data.path or None)}'
