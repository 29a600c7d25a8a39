"""AG News, SST-2, Natural Questions and GSM8K as PRewrite uses them.

Templates and split sizes are those of PRewrite (arXiv 2401.08189). The dev
split is a fixed random tenth of the official training split. The test split is
the official one, or the validation split where test labels are not published.
The paper does not print its initial instructions; these are plain ones.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
import random
from collections.abc import Callable, Mapping
from typing import Any

from promptrl_jax.tasks import instruction_sources, instructions
from promptrl_jax.tasks.json_lines import DataError
from promptrl_jax.tasks.task_set import DataConfig, TaskSet
from promptrl_jax.types import Task

SPLITS = ('train', 'dev', 'test')
_DEV_SHARE = 0.1


@dataclasses.dataclass(frozen=True)
class InstructionSet:
  """A data set and how its rows become examples.

  Attributes:
    hub: id and config on the Hugging Face hub.
    train: the official split that is cut into train and dev.
    test: the official split that is the test split.
    sizes: number of examples in train, dev and test.
    task: one of `instructions.TASKS`, for every example.
    columns: the columns of a row that `example` reads.
    example: row -> (input, output).
  """

  hub: tuple[str, str]
  train: str
  test: str
  sizes: tuple[int, int, int]
  task: str
  template: str
  instruction: str
  columns: tuple[str, ...]
  example: Callable[[Mapping[str, Any]], tuple[str, str | list[str]]]


_AG_NEWS = ('World', 'Sports', 'Business', 'Sci/Tech')
_SST2 = ('negative', 'positive')

SETS = {
  'ag_news': InstructionSet(
    hub=('fancyzhx/ag_news', ''),
    train='train',
    test='test',
    sizes=(108_000, 12_000, 7_600),
    task='classification',
    template='{instruction}\nArticle: {input}',
    instruction=(
      'Classify the article as one of World, Sports, Business, Sci/Tech.'
    ),
    columns=('text', 'label'),  # The text is title and description.
    example=lambda row: (row['text'], _AG_NEWS[row['label']]),
  ),
  'sst2': InstructionSet(
    hub=('stanfordnlp/sst2', ''),
    train='train',
    test='validation',
    # The paper counts 871 test examples; the hub has 872.
    sizes=(60_614, 6_735, 872),
    task='classification',
    template='{instruction}\nText: {input}',
    instruction='Classify the text as positive or negative.',
    columns=('sentence', 'label'),
    example=lambda row: (row['sentence'], _SST2[row['label']]),
  ),
  'nq': InstructionSet(
    hub=('google-research-datasets/nq_open', ''),
    train='train',
    test='validation',
    sizes=(79_168, 8_757, 3_610),
    task='qa',
    template='{instruction}\nQuestion: {input}',
    instruction='Answer the question.',
    columns=('question', 'answer'),
    example=lambda row: (row['question'], list(row['answer'])),
  ),
  'gsm8k': InstructionSet(
    hub=('openai/gsm8k', 'main'),
    train='train',
    test='test',
    sizes=(6_725, 748, 1_319),
    task='math',
    template='{instruction}\nQuestion: {input}',
    instruction='Solve the problem.',
    columns=('question', 'answer'),
    example=lambda row: (
      row['question'],
      row['answer'].rpartition('####')[2].strip(),
    ),
  ),
}


@dataclasses.dataclass(frozen=True)
class Options:
  """Settings of the task sets of this file; see `load`."""

  any_size: bool = False


def task_set(name: str) -> TaskSet:
  """Returns the entry of a set in the table of task sets."""

  def load_part(split: str, config: DataConfig) -> tuple[Task, ...]:
    part = 'dev' if split == 'validation' else split
    return (load(name, part, config.path, config.options.any_size),)

  def digest(config: DataConfig) -> str:
    tasks = [load_part(split, config) for split in SPLITS]
    return hashlib.sha256(repr(tasks).encode()).hexdigest()[:16]

  return TaskSet(load=load_part, digest=digest, options=Options)


def load(name: str, split: str, path: str = '', any_size: bool = False) -> Task:
  """Loads one split, `train`, `dev` or `test`, of a data set as one task.

  Args:
    path: folder with files named after the official splits (`train.jsonl`,
      `test.jsonl`, ...) and with the hub's columns; empty: the hub.
    any_size: whether the official split may have another number of rows, as a
      small sample of it does; a tenth of its training rows, rounded up, is dev.

  Raises:
    DataError: the set or split is unknown, the data cannot be loaded or has
      other columns, or the official split has another size.
  """
  if name not in SETS:
    raise DataError(f'data set {name!r}: expected one of {", ".join(SETS)}')
  if split not in SPLITS:
    raise DataError(f'split {split!r}: expected one of {", ".join(SPLITS)}')
  source = SETS[name]
  hub, config = (path, '') if path else source.hub
  official = source.test if split == 'test' else source.train
  rows = list(instruction_sources.read_hub(hub, config, official))
  if not any_size:
    _check_size(source, official, len(rows), hub)
  if split != 'test':
    in_dev = dev_places(name, len(rows))
    rows = [
      row for i, row in enumerate(rows) if (i in in_dev) == (split == 'dev')
    ]
  if not rows:
    raise DataError(f'split {split!r} of {hub} is empty')
  lines = [(where, _line(source, row, where)) for where, row in rows]
  (task,) = instructions.group(lines, split)
  return task


def split_sizes(name: str, rows: int) -> tuple[int, int]:
  """Returns the sizes of train and dev for a training split of `rows` rows.

  The official data gives the paper's sizes. Otherwise dev is a tenth, rounded
  up.
  """
  train, dev, _ = SETS[name].sizes
  if rows == train + dev:
    return train, dev
  dev = math.ceil(_DEV_SHARE * rows)
  return rows - dev, dev


def dev_places(name: str, rows: int) -> frozenset[int]:
  """Returns the indices of the training rows that are dev, always the same."""
  _, dev = split_sizes(name, rows)
  return frozenset(random.Random(f'dev/{name}').sample(range(rows), dev))


def _check_size(
  source: InstructionSet, official: str, rows: int, hub: str
) -> None:
  train, dev, test = source.sizes
  expected = train + dev if official == source.train else test
  if rows != expected:
    raise DataError(
      f'split {official!r} of {hub} has {rows} rows, the official one has '
      f'{expected}: scores on it cannot be compared with published ones; use '
      'the official data, or any_size=True (--any_size) for a sample of it'
    )


def _line(
  source: InstructionSet, row: Mapping[str, Any], where: str
) -> dict[str, Any]:
  for column in source.columns:
    if column not in row:
      raise DataError(
        f'{where}: no column {column!r}; there are {", ".join(row)}'
      )
  try:
    given, output = source.example(row)
  except (IndexError, TypeError, AttributeError) as error:
    raise DataError(f'{where}: cannot be read ({error}): {row!r}') from error
  return {
    'instruction': source.instruction,
    'input': given,
    'output': output,
    'task': source.task,
    'template': source.template,
  }
