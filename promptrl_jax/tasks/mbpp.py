"""MBPP, Mostly Basic Python Problems, with its official splits.

Austin et al., "Program Synthesis with Large Language Models", arXiv 2108.07732.
Tasks 1-10 are few-shot examples, 11-510 test, 511-600 validation, 601-974
train.
"""

from __future__ import annotations

import ast
import hashlib
import json
import pathlib
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

from promptrl_jax.prompts.entry_point import entry_point
from promptrl_jax.tasks import json_lines
from promptrl_jax.tasks.json_lines import DataError
from promptrl_jax.types import Task, UnitTests

# Two tasks with the same statement are the same task.
STATEMENTS_IDENTIFY_TASKS = True
HUB_NAME = 'google-research-datasets/mbpp'
SPLITS = {
  'prompt': range(1, 11),
  'test': range(11, 511),
  'validation': range(511, 601),
  'train': range(601, 975),
}
_FIELDS = {'task_id': int, 'text': str, 'code': str, 'test_list': list}


def load(split: str, path: str | None = None) -> tuple[Task, ...]:
  """Loads the tasks of one of `SPLITS`.

  `path` is a JSONL file with MBPP's fields; None loads the data from the hub.

  Raises:
    DataError: the file is missing or malformed, or the split is unknown or
      empty.
  """
  if split not in SPLITS:
    raise DataError(f'split {split!r}: MBPP has {", ".join(SPLITS)}')
  tasks = _tasks(split, path)
  if not tasks:
    ids = SPLITS[split]
    raise DataError(
      f'{path or HUB_NAME} has no task of split {split!r} '
      f'(task_id {ids[0]} to {ids[-1]})'
    )
  return tasks


def few_shots(path: str | None = None) -> tuple[Task, ...]:
  """Loads the split `prompt`, which a file may leave out."""
  return _tasks('prompt', path)


def digest(path: str | None = None) -> str:
  """Returns a short SHA-256; results on different data are not compared."""
  if path:
    return hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()[:16]
  sha = hashlib.sha256()
  for _, row in _read_hub():
    sha.update(json.dumps(row, sort_keys=True).encode())
  return sha.hexdigest()[:16]


def to_task(row: Mapping[str, Any], split: str, where: str) -> Task:
  """Converts one row to a `Task`; `where` names the row in errors."""
  tests = tuple(row['test_list'])
  if not tests or not all(isinstance(t, str) and t.strip() for t in tests):
    raise DataError(
      f'{where}: task {row["task_id"]} has no tests: "test_list" must hold at '
      f'least one assertion, got {row["test_list"]!r}'
    )
  try:
    name = entry_point(tests)
  except ValueError as error:
    raise DataError(f'{where}: task {row["task_id"]}: {error}') from error
  return Task(
    task_id=f'mbpp/{row["task_id"]}',
    statement=row['text'],
    checker=UnitTests(
      entry_point=name,
      signature=_signature(row['code'], name),
      tests=tests,
      setup=row.get('test_setup_code') or '',
    ),
    reference=row['code'],
    split=split,
  )


def _tasks(split: str, path: str | None) -> tuple[Task, ...]:
  rows = _read_file(path) if path else _read_hub()
  return tuple(
    to_task(row, split, where)
    for where, row in rows
    if row['task_id'] in SPLITS[split]
  )


def _signature(code: str, name: str) -> str:
  """Returns the `def` line; the argument names are part of the task."""
  with warnings.catch_warnings():
    warnings.simplefilter('ignore')  # MBPP's programs have strange escapes.
    tree = ast.parse(code)
  for node in ast.walk(tree):
    if isinstance(node, ast.FunctionDef) and node.name == name:
      return f'def {name}({ast.unparse(node.args)}):'
  return f'def {name}(*args):'


def _read_file(path: str) -> Iterable[tuple[str, dict[str, Any]]]:
  if not pathlib.Path(path).is_file():
    raise DataError(
      f'no MBPP file at {path}: give a JSONL file with --config.data.path, or '
      f'leave it empty to download {HUB_NAME}'
    )
  empty = True
  for where, row in json_lines.read(path):
    empty = False
    for field, kind in _FIELDS.items():
      if not isinstance(row.get(field), kind):
        raise DataError(
          f'{where}: field {field!r} must be {kind.__name__}, '
          f'got {row.get(field)!r}'
        )
    yield where, row
  if empty:
    raise DataError(f'{path} is empty: expected one JSON object per line')


def _read_hub() -> Iterable[tuple[str, dict[str, Any]]]:
  import datasets  # slow to import, and not needed with a local file

  try:
    parts = datasets.load_dataset(HUB_NAME, 'full')
  except Exception as error:  # the hub client raises many kinds when offline
    raise DataError(
      f'{HUB_NAME} could not be loaded ({type(error).__name__}: {error}). '
      'Either give a local copy with --config.data.path=mbpp.jsonl, or connect '
      'to the Hugging Face hub once so that it is cached'
    ) from error
  for split, rows in parts.items():
    for number, row in enumerate(rows, 1):
      yield f'{HUB_NAME}:{split}:{number}', dict(row)
