"""The tasks that a config asks for; no flags, so that experiments share it."""

from __future__ import annotations

import logging
import pathlib

from promptrl_jax.tasks import mbpp, overlaps, splits
from promptrl_jax.tasks.minicode import suite


def load_tasks(data):
  """Loads the tasks of the three splits, without overlaps in training.

  Training tasks that are worded like a validation or test task are left out;
  that depends on the whole splits and not on their limits.

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
  left_out = _overlapping(data, parts)
  if data.train_tasks:
    parts['train'] = chosen(parts['train'], data.train_tasks)
  parts['train'] = tuple(t for t in parts['train'] if t.task_id not in left_out)
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


def _overlapping(data, parts):
  """Returns ids of training tasks that are worded like evaluation tasks.

  Raises:
    ValueError: two splits share a task.
  """
  if data.name == 'minicode':
    few_shots, identify = (), suite.STATEMENTS_IDENTIFY_TASKS
  else:
    few_shots = mbpp.few_shots(data.path or None)
    identify = mbpp.STATEMENTS_IDENTIFY_TASKS
  report = overlaps.check_no_leak({'few-shots': few_shots, **parts}, identify)
  left_out = report.train_ids()
  if report.overlaps:
    logging.getLogger(__name__).warning(
      '%s: %d pairs of tasks of different splits are worded alike; %d training '
      'tasks are left out (`python -m promptrl_jax.tools.leaks --data=%s '
      '--path=%s` lists them)',
      data.name,
      len(report.overlaps),
      len(left_out),
      data.name,
      data.path,
    )
  return left_out


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
