"""Results of one strategy on all tasks, scored once by hidden tests."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from promptrl_jax.envs.runner import Pool
from promptrl_jax.evaluation.cells import Cell, Detail
from promptrl_jax.execution import Program, SystemFailure
from promptrl_jax.tasks import splits
from promptrl_jax.types import Task


@dataclasses.dataclass(frozen=True)
class Run:
  """One strategy on all tasks, once.

  Attributes:
    passed: bool [problems], the submitted program passes all hidden tests.
    soft: float [problems], share of hidden tests passed.
    calls, attempts, prompt_tokens, completion_tokens: int [problems].
  """

  passed: np.ndarray
  soft: np.ndarray
  calls: np.ndarray
  attempts: np.ndarray
  prompt_tokens: np.ndarray
  completion_tokens: np.ndarray
  trace: list[dict[str, Any]]
  details: tuple[Detail, ...] = ()


def check_judged(
  what: str, tasks: Sequence[Task], judged: Sequence[bool]
) -> None:
  """Raises SystemFailure if a task got no verdict; the message names three."""
  pairs = zip(tasks, judged, strict=True)
  lost = [task.task_id for task, is_judged in pairs if not is_judged]
  if lost:
    raise SystemFailure(
      f'{len(lost)} {what} could not be scored ({lost[:3]}): run the '
      'evaluation again'
    )


def hidden_programs(
  codes: Sequence[str], tasks: Sequence[Task], protocol: str
) -> list[Program]:
  """Returns each submitted program with the hidden tests of its task."""
  return [
    Program(
      code=code,
      tests=splits.hidden_tests(task, protocol),
      setup=task.setup,
      entry_point=task.entry_point,
    )
    for code, task in zip(codes, tasks, strict=True)
  ]


def score(
  codes: Sequence[str],
  tasks: Sequence[Task],
  protocol: str,
  pool: Pool,
) -> tuple[np.ndarray, list[str]]:
  """Runs each submitted program on the hidden tests of its task, once.

  Returns:
    Share of hidden tests that each passes, [problems], and a mask of 1 and 0
    for each problem's tests.

  Raises:
    SystemFailure: a program got no verdict.
  """
  results = pool.run(hidden_programs(codes, tasks, protocol))
  check_judged('submissions', tasks, [r.score is not None for r in results])
  masks = [
    ''.join('01'[test.status == 'passed'] for test in result.tests)
    for result in results
  ]
  return np.array([result.score for result in results], np.float64), masks


def to_cell(
  strategy: str,
  budget: int,
  protocol: str,
  tasks: Sequence[Task],
  runs: Sequence[Run],
  optimisation_calls: float | None = 0.0,
) -> Cell:
  """Stacks the runs of several seeds."""

  def stack(name: str) -> np.ndarray:
    return np.stack([getattr(r, name) for r in runs])

  return Cell(
    strategy=strategy,
    budget=budget,
    protocol=protocol,
    task_ids=tuple(task.task_id for task in tasks),
    passed=stack('passed'),
    soft=stack('soft'),
    calls=stack('calls'),
    attempts=stack('attempts'),
    prompt_tokens=stack('prompt_tokens'),
    completion_tokens=stack('completion_tokens'),
    optimisation_calls=optimisation_calls,
    details=tuple(run.details for run in runs if run.details),
    families=tuple(task.family for task in tasks),
  )
