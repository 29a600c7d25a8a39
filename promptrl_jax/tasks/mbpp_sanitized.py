"""MBPP sanitized: the 427 tasks of MBPP that its authors verified by hand.

Austin et al., "Program Synthesis with Large Language Models", arXiv 2108.07732.
Statements and tests were corrected, so that a task may have other words and
another number of tests than that of the same id in MBPP. Splits are those of
MBPP, by task id.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from promptrl_jax.tasks import mbpp
from promptrl_jax.tasks.benchmark import Benchmark
from promptrl_jax.types import Task

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


def to_task(row: Mapping[str, Any], split: str, where: str) -> Task:
  """Converts one row to a `Task`; `where` names the row in errors."""
  setup = '\n'.join(row['test_imports'])
  return mbpp.programming_task(
    row, split, where, row['prompt'], setup, 'mbpp_sanitized'
  )


TASK_SET = mbpp.task_set(SANITIZED, to_task)
