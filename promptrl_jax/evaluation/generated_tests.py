"""How good model-written tests are: what the reference programs say of them.

The report is made of counts: which test a reference program passes is not said,
so that no strategy can choose its tests by it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from promptrl_jax.evaluation.protocol import SystemFailure
from promptrl_jax.execution import ExecutionPool
from promptrl_jax.rewards import agreement
from promptrl_jax.types import Task


@dataclasses.dataclass(frozen=True)
class ReferenceReport:
  """Generated tests against reference programs.

  Attributes:
    tasks: tasks asked about.
    tasks_without_tests: those for which there is no usable test.
    tasks_all_passed: those with tests, all of which the reference passes.
    tests: generated tests of all tasks.
    tests_passed: those that the reference program passes.
  """

  tasks: int
  tasks_without_tests: int
  tasks_all_passed: int
  tests: int
  tests_passed: int

  @property
  def share(self) -> float | None:
    """Share of the tests that are passed, in [0, 1]; None without tests."""
    return self.tests_passed / self.tests if self.tests else None


def check_against_reference(
  tests: Sequence[Sequence[str]], tasks: Sequence[Task], pool: ExecutionPool
) -> ReferenceReport:
  """Runs the reference program of each task against the tests made for it.

  Args:
    tests: of each task, in the order of `tasks`; may be empty for some.
    tasks: each with a reference program, unless it has no tests.
    pool: where programs run.

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
  lost = [
    task.task_id
    for (_, task), result in zip(tested, results, strict=True)
    if result.score is None
  ]
  if lost:
    raise SystemFailure(
      f'{len(lost)} reference programs could not be judged ({lost[:3]}): run '
      'the check again'
    )
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
