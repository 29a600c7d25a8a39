"""The interface of a task set; `load.py` holds the table of those there are."""

from __future__ import annotations

import dataclasses
import hashlib
import pathlib
from collections.abc import Callable, Collection, Sequence
from typing import Any

from promptrl_jax.types import Task

SPLITS = ('train', 'validation', 'test')


@dataclasses.dataclass(frozen=True)
class NoOptions:
  """The options of a task set that has none."""


@dataclasses.dataclass(frozen=True)
class DataConfig:
  """Which tasks an experiment uses.

  Attributes:
    name: of the task set.
    path: file or folder of the data; empty for data that the package carries or
      that the Hugging Face hub has.
    protocol: the part of the checkers that a solver sees; see `splits.py`.
    train_tasks: file with the ids of the tasks to train on, one on each line;
      empty for all.
    train_limit, validation_limit, test_limit: first N tasks of a split; 0 for
      all.
    options: settings of this task set alone, by name; a loader gets an instance
      of its `TaskSet.options`.
  """

  name: str = 'minicode'
  path: str = ''
  protocol: str = 'visible1'
  train_tasks: str = ''
  train_limit: int = 0
  validation_limit: int = 0
  test_limit: int = 0
  options: Any = dataclasses.field(default_factory=dict)

  def __post_init__(self):
    for name in ('train_limit', 'validation_limit', 'test_limit'):
      if getattr(self, name) < 0:
        raise ValueError(
          f'data.{name}={getattr(self, name)}: expected the number of tasks, '
          'or 0 for all'
        )


def file_digest(config: DataConfig) -> str:
  """Returns a short SHA-256 of the file, or of all files of the folder."""
  path, sha = pathlib.Path(config.path), hashlib.sha256()
  files = sorted(path.rglob('*')) if path.is_dir() else [path]
  for file in files:
    if file.is_file():
      sha.update(file.read_bytes())
  return sha.hexdigest()[:16]


@dataclasses.dataclass(frozen=True)
class TaskSet:
  """A task set and all that is special about it.

  Attributes:
    load: (split, config) -> its tasks. Their field `split` is set afterwards.
    digest: config -> short hash of the data; results of two digests are never
      compared.
    options: dataclass of the settings of this set alone; `config.options` is an
      instance of it.
    splits: names of the splits, `train` first.
    few_shots: config -> tasks that prompts show, compared with all splits.
    statements_identify: whether tasks with the same statement are the same
      task; see `overlaps.py`.
    practice: task ids -> parameter values for further statements of the kind of
      these tasks, to learn from without their programs.
  """

  load: Callable[[str, DataConfig], Sequence[Task]]
  digest: Callable[[DataConfig], str] = file_digest
  options: type = NoOptions
  splits: tuple[str, ...] = SPLITS
  few_shots: Callable[[DataConfig], Sequence[Task]] = lambda config: ()
  statements_identify: bool = True
  practice: Callable[[Collection[str]], Sequence[Any]] = lambda task_ids: ()
