"""MBPP, Mostly Basic Python Problems, with its official splits.

Austin et al., "Program Synthesis with Large Language Models", arXiv 2108.07732.
Tasks 1-10 are few-shot examples, 11-510 test, 511-600 validation, 601-974
train.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from promptrl_jax.prompts import parsing
from promptrl_jax.prompts.entry_point import entry_point
from promptrl_jax.tasks.benchmark import Benchmark, Row
from promptrl_jax.tasks.json_lines import DataError
from promptrl_jax.tasks.task_set import TaskSet
from promptrl_jax.types import Task, UnitTests

SPLITS = {
  'prompt': range(1, 11),
  'test': range(11, 511),
  'validation': range(511, 601),
  'train': range(601, 975),
}
MBPP = Benchmark(
  name='MBPP',
  layouts=({'task_id': int, 'text': str, 'code': str, 'test_list': list},),
  hub='google-research-datasets/mbpp',
  part='full',
  file='mbpp.jsonl',
)
# (rows, split) -> their tasks.
ToTasks = Callable[[Sequence[Row], str], tuple[Task, ...]]


def load(split: str, path: str = '') -> tuple[Task, ...]:
  """Loads the tasks of one of `SPLITS`.

  `path` is a file with MBPP's fields; empty loads the data from the hub.

  Raises:
    DataError: the file is missing or malformed, or the split is unknown or
      empty.
  """
  return load_split(MBPP, to_tasks, split, path)


def few_shots(path: str = '') -> tuple[Task, ...]:
  """Loads the split `prompt`, which a file may leave out."""
  return tasks_of(MBPP, to_tasks, 'prompt', path)


def load_split(
  benchmark: Benchmark, convert: ToTasks, split: str, path: str
) -> tuple[Task, ...]:
  """As `load`, for any benchmark with MBPP's task ids."""
  if split not in SPLITS:
    raise DataError(
      f'split {split!r}: {benchmark.name} has {", ".join(SPLITS)}'
    )
  tasks = tasks_of(benchmark, convert, split, path)
  if not tasks:
    ids = SPLITS[split]
    raise DataError(
      f'{path or benchmark.hub} has no task of split {split!r} '
      f'(task_id {ids[0]} to {ids[-1]})'
    )
  return tasks


def tasks_of(
  benchmark: Benchmark, convert: ToTasks, split: str, path: str
) -> tuple[Task, ...]:
  """The tasks of a split by their ids, none if there are none."""
  rows = benchmark.read(path)
  ids = SPLITS[split]
  return convert([r for r in rows if number(r[1]['task_id']) in ids], split)


def task_set(benchmark: Benchmark, convert: ToTasks) -> TaskSet:
  """Returns the task set of a benchmark with MBPP's task ids and splits."""
  return TaskSet(
    load=lambda split, config: load_split(
      benchmark, convert, split, config.path
    ),
    digest=lambda config: benchmark.digest(config.path),
    few_shots=lambda config: tasks_of(
      benchmark, convert, 'prompt', config.path
    ),
  )


def number(task_id: int | str) -> int:
  """Returns MBPP's number of a task: 11 for 11 and for `Mbpp/11`."""
  digits = str(task_id).removeprefix('Mbpp/')
  return int(digits) if digits.isdecimal() else -1


def to_tasks(rows: Sequence[Row], split: str) -> tuple[Task, ...]:
  """Converts rows to tasks."""
  return tuple(
    programming_task(
      row, split, where, row['text'], row.get('test_setup_code') or ''
    )
    for where, row in rows
  )


def programming_task(
  row: Mapping[str, Any],
  split: str,
  where: str,
  statement: str,
  setup: str,
  task_set: str = 'mbpp',
) -> Task:
  """Returns the task of a row with `task_id`, `code` and `test_list`.

  Raises:
    DataError: the row has no tests, or they call no function.
  """
  tests = tuple(row['test_list'])
  if not tests or not all(isinstance(t, str) and t.strip() for t in tests):
    raise DataError(
      f'{where}: task {row["task_id"]} has no tests: "test_list" must hold at '
      f'least one assertion, got {row["test_list"]!r}'
    )
  try:
    name = entry_point(tests)
    first_line = signature(row['code'], name)
  except (SyntaxError, ValueError) as error:
    raise DataError(f'{where}: task {row["task_id"]}: {error}') from error
  return Task(
    task_id=f'{task_set}/{row["task_id"]}',
    statement=statement,
    checker=UnitTests(
      entry_point=name, signature=first_line, tests=tests, setup=setup
    ),
    reference=row['code'],
    split=split,
  )


def signature(code: str, name: str) -> str:
  """Returns the `def` line; the argument names are part of the task."""
  for node in ast.walk(parsing.parse(code)):
    if isinstance(node, ast.FunctionDef) and node.name == name:
      return f'def {name}({ast.unparse(node.args)}):'
  return f'def {name}(*args):'


TASK_SET = task_set(MBPP, to_tasks)
