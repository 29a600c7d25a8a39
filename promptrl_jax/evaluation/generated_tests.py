"""The quality of model-written tests, measured with the reference programs.

The report holds counts only. It does not say which tests the reference program
passes, so no strategy can select its tests by it.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from promptrl_jax.envs.runner import Pool
from promptrl_jax.evaluation import markdown
from promptrl_jax.evaluation.protocol import check_judged
from promptrl_jax.execution import ExecutionPool
from promptrl_jax.execution.memo import MemoPool
from promptrl_jax.rewards import agreement
from promptrl_jax.types import Task


@dataclasses.dataclass(frozen=True)
class ReferenceReport:
  """Counts of generated tests that the reference programs pass.

  Attributes:
    tasks_without_tests: tasks for which no usable test was generated.
    tasks_all_passed: tasks with tests whose reference program passes them all.
    tests: number of generated tests over all tasks.
    tests_passed: number of those tests that the reference program passes.
  """

  tasks: int
  tasks_without_tests: int
  tasks_all_passed: int
  tests: int
  tests_passed: int

  @property
  def share(self) -> float | None:
    """The share of tests passed, in [0, 1]; None if there are no tests."""
    return self.tests_passed / self.tests if self.tests else None


def check_against_reference(
  tests: Sequence[Sequence[str]], tasks: Sequence[Task], pool: Pool
) -> ReferenceReport:
  """Runs each task's reference program on the tests generated for the task.

  Args:
    tests: one collection per task in the order of `tasks`, perhaps empty.
    tasks: the tasks; each one with tests needs a reference program.
    pool: execution pool that runs the programs.

  Raises:
    ValueError: a task has no reference, or the lengths differ.
    SystemFailure: a program could not be judged.
  """
  if len(tests) != len(tasks):
    raise ValueError(
      f'{len(tests)} collections of tests for {len(tasks)} tasks: give one each'
    )
  tested = [(t, task) for t, task in zip(tests, tasks, strict=True) if t]
  lacking = [task.task_id for _, task in tested if not task.reference.strip()]
  if lacking:
    raise ValueError(
      f'{len(lacking)} tasks have no reference program ({lacking[:3]}): leave '
      'them out'
    )
  results = pool.run(
    [
      agreement.to_program(
        task.reference, t, setup=task.setup, entry_point=task.entry_point
      )
      for t, task in tested
    ]
  )
  tasks_tested = [task for _, task in tested]
  judged = [result.score is not None for result in results]
  check_judged('reference programs', tasks_tested, judged)
  passed = [
    [test.status == 'passed' for test in result.tests] for result in results
  ]
  return ReferenceReport(
    tasks=len(tasks),
    tasks_without_tests=len(tasks) - len(tested),
    tasks_all_passed=sum(all(row) for row in passed),
    tests=sum(len(row) for row in passed),
    tests_passed=sum(sum(row) for row in passed),
  )


def of_trace(
  rows: Iterable[Mapping[str, Any]], tasks: Sequence[Task], pool: ExecutionPool
) -> list[dict[str, Any]]:
  """Checks the tests that strategies wrote; see `check_against_reference`.

  Args:
    rows: of a trace; those of the action `write_tests` are read.
    tasks: the problems of the trace. Those without a reference are left out.
    pool: execution pool that runs the programs.

  Returns:
    A row per strategy, protocol and budget with the fields of the report, whose
    tasks are attempts here: a problem counts for each seed.
  """
  known = {task.task_id: task for task in tasks if task.reference.strip()}
  written: dict[tuple, dict[tuple, list[str]]] = {}
  for row in rows:
    if row['action'] == 'write_tests' and row['task_id'] in known:
      attempts = written.setdefault(
        (row['strategy'], row['protocol'], row['budget']),
        collections.defaultdict(list),
      )
      attempts[row['seed'], row['task_id']] += row['tests']
  memo, found = MemoPool(pool), []  # Many are asked for the same tests.
  for (strategy, protocol, budget), attempts in written.items():
    report = check_against_reference(
      list(attempts.values()), [known[task] for _, task in attempts], memo
    )
    key = {'strategy': strategy, 'protocol': protocol, 'budget': budget}
    found.append(key | dataclasses.asdict(report))
  return found


def to_markdown(rows: Iterable[Mapping[str, Any]]) -> str:
  """Prints the result of `of_trace`; '' without rows."""
  cells = [
    {
      'strategy': row['strategy'],
      'B': row['budget'],
      'attempts': row['tasks'],
      'without a test': row['tasks_without_tests'],
      'tests': row['tests'],
      'right, in %': markdown.points(row['tests_passed'] / row['tests'])
      if row['tests']
      else '-',
      'attempts with right tests alone': row['tasks_all_passed'],
    }
    for row in rows
  ]
  if not cells:
    return ''
  return (
    '### Tests that the model wrote\n\n'
    'A test is right if the reference program passes it. No strategy knows '
    'which are.\n\n'
    f'{markdown.table(cells, "lrrrrrr")}\n'
  )
