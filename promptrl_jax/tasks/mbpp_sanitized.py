"""MBPP sanitized: the 427 tasks of MBPP that its authors verified by hand.

Austin et al., "Program Synthesis with Large Language Models", arXiv 2108.07732.
Statements and tests were corrected, so that a task may have other words and
another number of tests than that of the same id in MBPP. Splits are those of
MBPP, by task id.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from promptrl_jax.tasks import mbpp
from promptrl_jax.tasks.benchmark import Benchmark, Row
from promptrl_jax.types import Task

NAME = 'mbpp_sanitized'
FIELDS = {
  **{'task_id': int, 'prompt': str, 'code': str},
  **{'test_imports': list, 'test_list': list},
}
SANITIZED = Benchmark(
  name='MBPP sanitized',
  layouts=(FIELDS,),
  hub=mbpp.MBPP.hub,
  part='sanitized',
  file='sanitized-mbpp.json',
)


def to_tasks(rows: Sequence[Row], split: str) -> tuple[Task, ...]:
  """Converts rows to tasks."""
  return tuple(to_task(row, split, where) for where, row in rows)


def to_task(
  row: Mapping[str, Any], split: str, where: str, task_set: str = NAME
) -> Task:
  """Converts one row to a `Task`; `where` names the row in errors."""
  setup = '\n'.join(row['test_imports'])
  return mbpp.programming_task(
    row, split, where, row['prompt'], setup, task_set
  )


TASK_SET = mbpp.task_set(SANITIZED, to_tasks)
