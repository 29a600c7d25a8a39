"""Questions and answers from JSON lines, `{"question": ..., "answer": ...}`.

Each question is a task whose reply is compared with the right answers. With the
option `instruction` the questions are the examples of one instruction instead,
as PRewrite needs them.
"""

from __future__ import annotations

import dataclasses
import math
import pathlib
import random
from collections.abc import Mapping
from typing import Any

from promptrl_jax.tasks import instruction_sources
from promptrl_jax.tasks.json_lines import DataError
from promptrl_jax.tasks.task_set import SPLITS, DataConfig
from promptrl_jax.types import Answers, Example, Examples, Task


@dataclasses.dataclass(frozen=True)
class Options:
  """Settings of the task set `questions`.

  Attributes:
    question, answer: columns of the file. An answer is a text, a number, or a
      list of texts each of which is right.
    metric: one of `rewards.text.METRICS`.
    validation_share, test_share: parts of a single file that are drawn for
      these splits; a folder has a file for each split instead.
    seed: of the draw.
    instruction: if given, the questions are examples of this instruction.
    template: the prompt of an instruction and a question.
  """

  question: str = 'question'
  answer: str = 'answer'
  metric: str = 'em'
  validation_share: float = 0.1
  test_share: float = 0.1
  seed: int = 0
  instruction: str = ''
  template: str = '{instruction}\nQuestion: {input}'

  def __post_init__(self):
    shares = self.validation_share, self.test_share
    if not (min(shares) >= 0 and sum(shares) < 1):
      raise ValueError(
        f'validation_share={shares[0]}, test_share={shares[1]}: expected '
        'shares of the file that leave something to train on'
      )


def load(split: str, config: DataConfig) -> tuple[Task, ...]:
  """Loads one split.

  Raises:
    DataError: no such file or folder, a row without the columns, or a split
      without a question.
  """
  options: Options = config.options
  path = pathlib.Path(config.path)
  if not config.path:
    raise DataError(
      'data.path is empty: give a JSON lines file of questions and answers, or '
      f'a folder with {", ".join(f"{name}.jsonl" for name in SPLITS)}'
    )
  if path.is_dir():
    rows = _read(path / f'{split}.jsonl')
  else:
    rows = _part(_read(path), split, options)
  if not rows:
    raise DataError(f'{path} has no question for the split {split!r}')
  examples = {where: _example(row, where, options) for where, row in rows}
  labels = ()
  if options.metric == 'accuracy':
    labels = tuple(sorted({o for e in examples.values() for o in e.outputs}))
  if options.instruction:
    checker = Examples(
      options.template, tuple(examples.values()), options.metric, labels
    )
    return (Task('questions', options.instruction, checker, split),)
  return tuple(
    Task(where, e.input, Answers(e.outputs, options.metric, labels), split)
    for where, e in examples.items()
  )


def _read(path: pathlib.Path) -> list[instruction_sources.Row]:
  """Rows under names that are short and unique: file and line."""
  rows = instruction_sources.read('jsonl', str(path))
  return [(f'{path.name}:{w.rpartition(":")[2]}', row) for w, row in rows]


def _part(
  rows: list[instruction_sources.Row], split: str, options: Options
) -> list[instruction_sources.Row]:
  """The rows of a split, in the order of the file."""
  order = list(range(len(rows)))
  random.Random(f'questions/{options.seed}').shuffle(order)
  test = math.ceil(options.test_share * len(rows))
  validation = test + math.ceil(options.validation_share * len(rows))
  places = {
    'test': order[:test],
    'validation': order[test:validation],
    'train': order[validation:],
  }[split]
  return [rows[place] for place in sorted(places)]


def _example(row: Mapping[str, Any], where: str, options: Options) -> Example:
  for column in (options.question, options.answer):
    if column not in row:
      raise DataError(
        f'{where}: no column {column!r}; there are {", ".join(row)}: name the '
        'columns with data.options.question and data.options.answer'
      )
  question, answer = row[options.question], row[options.answer]
  answers = answer if isinstance(answer, list) else [answer]
  numbers = (int, float)  # A truth value is one, too.
  outputs = tuple(str(a) if isinstance(a, numbers) else a for a in answers)
  if not outputs or not all(isinstance(o, str) for o in (question, *outputs)):
    raise DataError(
      f'{where}: expected a text as question and a text, a number or a list of '
      f'texts as answer, got {question!r} and {answer!r}'
    )
  return Example(question, outputs)
