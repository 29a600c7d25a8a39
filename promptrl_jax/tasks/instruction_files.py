"""Instruction tasks from files of JSON lines, one file per split.

`instructions.py` says what a line holds.
"""

from __future__ import annotations

import collections
import dataclasses
import hashlib
import itertools
import pathlib
from collections.abc import Mapping, Sequence

from promptrl_jax.tasks import instructions
from promptrl_jax.tasks.json_lines import DataError
from promptrl_jax.tasks.task_set import DataConfig
from promptrl_jax.types import Task


@dataclasses.dataclass(frozen=True)
class Options:
  """Settings of the task set `instructions`.

  Attributes:
    train: file of the examples to train on.
    dev: file of the examples that choose an instruction; the validation split.
    test: file of the examples that measure it; may be empty.
    instruction: replaces the instruction of the files, which have one each.
  """

  train: str = ''
  dev: str = ''
  test: str = ''
  instruction: str = ''

  def file_of(self, split: str) -> str:
    """Returns the file of a split."""
    files = {'train': self.train, 'validation': self.dev, 'test': self.test}
    return files[split]


def load(split: str, config: DataConfig) -> tuple[Task, ...]:
  """Loads one split; a classification task has the labels of all splits.

  Raises:
    DataError: no file, a line that is no example, or a dev or test task that
      the other of the two files does not have.
  """
  options: Options = config.options
  name = 'dev' if split == 'validation' else split
  if split != 'test' and not options.file_of(split):
    raise DataError(
      f'data.options.{name} is empty: give a file of its examples with '
      f'--config.data.options.{name}='
    )
  parts = {
    part: _read(options, part)
    for part in ('train', 'validation', 'test')
    if options.file_of(part)
  }
  if {'validation', 'test'} <= parts.keys():
    pairs = instructions.match(parts['validation'], parts['test'])
    parts['test'] = tuple(test for _, test in pairs)
  by_key = collections.defaultdict(list)
  for task in itertools.chain.from_iterable(parts.values()):
    by_key[instructions.key_of(task)].append(task)
  return tuple(
    instructions.share_labels(task, *by_key[instructions.key_of(task)])
    for task in parts.get(split, ())
  )


def check(parts: Mapping[str, Sequence[Task]]) -> None:
  """Raises DataError if an instruction has one input in two splits.

  Examples to train on, to choose by and to measure on are disjoint; those that
  stop a training may be those that choose.
  """
  names = {'validation': 'dev'}
  for first, second in itertools.combinations(parts, 2):
    if {first, second} != {'validation', 'dev'}:
      instructions.check_no_shared_input(
        parts[first],
        parts[second],
        (names.get(first, first), names.get(second, second)),
      )


def digest(config: DataConfig) -> str:
  """Returns a short SHA-256 of all files."""
  sha = hashlib.sha256()
  for split in ('train', 'validation', 'test'):
    if config.options.file_of(split):
      sha.update(pathlib.Path(config.options.file_of(split)).read_bytes())
  return sha.hexdigest()[:16]


def _read(options: Options, split: str) -> tuple[Task, ...]:
  path = options.file_of(split)
  tasks = instructions.load(path, split)
  if not options.instruction:
    return tasks
  if len(tasks) > 1:
    raise DataError(
      f'data.options.instruction replaces one instruction, but {path} has '
      f'{len(tasks)}'
    )
  return tuple(
    instructions.with_instruction(task, options.instruction) for task in tasks
  )
