"""The tasks that a config asks for; no flags, so that experiments share it."""

from __future__ import annotations

import pathlib

from promptrl_jax.tasks import mbpp, splits
from promptrl_jax.tasks.minicode import suite


def load_tasks(data):
  """Tasks of the three splits, checked for leaks between them."""
  if data.protocol not in splits.PROTOCOLS:
    raise ValueError(
      f'data.protocol={data.protocol!r}: expected one of {splits.PROTOCOLS}'
    )
  limits = {
    'train': data.train_limit,
    'validation': data.validation_limit,
    'test': data.test_limit,
  }
  parts = {}
  for split, limit in limits.items():
    if data.name == 'minicode':
      loaded = suite.load(split)
    elif data.name == 'mbpp':
      loaded = mbpp.load(split, data.path or None)
    else:
      raise ValueError(f'data.name={data.name!r}: expected minicode or mbpp')
    if split == 'train' and data.train_tasks:
      loaded = chosen(loaded, data.train_tasks)
    parts[split] = loaded[:limit] if limit else loaded
  splits.check_no_leak(parts)
  return parts


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
