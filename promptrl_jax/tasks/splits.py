"""Which tests a solver sees, and which one score it.

| protocol      | a solver sees                      | hidden            |
|---------------|------------------------------------|-------------------|
| `blind`       | statement and signature            | all tests         |
| `visible1`    | also the first assertion           | all others        |
| `visible_all` | all base assertions                | further inputs    |
| `oracle`      | the scored tests, as a stop rule   | the same tests    |

Visible and hidden tests are disjoint everywhere but in `oracle`, which serves
parity with published numbers and nothing else. `visible_all` is for data with a
second set of inputs (MBPP+, HumanEval+; `UnitTests.extra`). Of a task with
right answers instead of tests, nothing is visible but in `oracle`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from promptrl_jax.types import (
  Answers,
  Checker,
  Problem,
  ProgramExamples,
  Task,
  UnitTests,
)

PROTOCOLS = ('blind', 'visible1', 'visible_all', 'oracle')


def visible_tests(task: Task, protocol: str) -> tuple[str, ...]:
  """Returns the tests that a solver may read and run.

  Raises:
    ValueError: the protocol is not known, or leaves no hidden test.
    TypeError: the task is not checked by unit tests.
  """
  check_protocol(protocol)
  tests, checker = task.tests, task.checker
  if not tests:
    raise ValueError(f'task {task.task_id} has no tests')
  reason = nothing_hidden(checker, protocol)
  if reason:
    raise ValueError(f'task {task.task_id} {reason}')
  assert isinstance(checker, UnitTests)
  base = len(tests) - checker.extra
  counts = {'blind': 0, 'visible1': 1, 'visible_all': base}
  return tests[: counts.get(protocol)]


def nothing_hidden(checker: Checker, protocol: str) -> str:
  """Returns why a protocol hides no test of a task; empty if it does."""
  if not isinstance(checker, UnitTests):
    return ''
  if protocol == 'visible1' and len(checker.tests) < 2:
    return (
      'has one test: with "visible1" none would be hidden; use "blind" or '
      '"oracle"'
    )
  if protocol == 'visible_all' and not checker.extra:
    return (
      'has no further inputs beside its base tests: with "visible_all" none '
      'would be hidden; use mbpp_plus or humaneval_plus, or "visible1"'
    )
  return ''


def hidden_tests(task: Task, protocol: str) -> tuple[str, ...]:
  """Returns the tests that score a submitted program."""
  visible = visible_tests(task, protocol)
  return task.tests if protocol == 'oracle' else task.tests[len(visible) :]


def visible(task: Task, protocol: str) -> Checker:
  """Returns the part of the checker that a solver may read and run.

  Right answers are visible under `oracle` only. A checker without visible parts
  has no tests, outputs or examples.

  Raises:
    ValueError: the protocol is not known, or leaves no hidden test.
  """
  check_protocol(protocol)
  checker = task.checker
  if isinstance(checker, UnitTests):
    return _with_tests(checker, visible_tests(task, protocol))
  if protocol == 'oracle':
    return checker
  if isinstance(checker, Answers):
    return dataclasses.replace(checker, outputs=())
  return dataclasses.replace(checker, examples=())


def hidden(task: Task, protocol: str) -> Checker:
  """Returns the part of the checker that scores a submission.

  Of an instruction for programming tasks, that is the hidden part of each task.
  """
  check_protocol(protocol)
  checker = task.checker
  if isinstance(checker, UnitTests):
    return _with_tests(checker, hidden_tests(task, protocol))
  if isinstance(checker, ProgramExamples):
    examples = (
      dataclasses.replace(example, checker=hidden(example, protocol))
      for example in checker.examples
    )
    return dataclasses.replace(checker, examples=tuple(examples))
  return checker


def reveal(task: Task, protocol: str) -> Problem:
  """Returns what a solver gets: an object with no place for a hidden check."""
  shown = visible(task, protocol)
  return Problem(task.task_id, task.statement, shown, split=task.split)


def reveal_for_training(task: Task, protocol: str) -> Problem:
  """As `reveal`, and the hidden part of the checker may be used for reward.

  Raises:
    ValueError: the task is not of the training split.
  """
  if task.split != 'train':
    raise ValueError(
      f'task {task.task_id} is of split {task.split!r}: only training tasks '
      'may be rewarded by their hidden tests'
    )
  problem, reward = reveal(task, protocol), task.checker
  if isinstance(reward, UnitTests):
    # In `oracle` no test is left; a test that occurs twice is run once.
    seen = set(problem.visible_tests)
    reward = _with_tests(reward, [t for t in reward.tests if t not in seen])
  return dataclasses.replace(problem, reward=reward)


def for_reward(problem: Problem) -> Checker:
  """Returns the checker that rewards a training problem: all its parts.

  Raises:
    ValueError: the problem is not one of `reveal_for_training`.
  """
  if problem.reward is None:
    raise ValueError(
      f'problem {problem.task_id} has no hidden part to be rewarded by: '
      'expected a problem of reveal_for_training'
    )
  if isinstance(problem.reward, UnitTests):
    tests = problem.visible_tests + problem.reward.tests
    return _with_tests(problem.reward, tests)
  return problem.reward


def _with_tests(checker: UnitTests, tests: Sequence[str]) -> UnitTests:
  """A part of a checker, which is not divided any further."""
  return dataclasses.replace(checker, tests=tuple(tests), extra=0)


def check_protocol(protocol: str) -> None:
  """Raises ValueError if the protocol is not known."""
  if protocol not in PROTOCOLS:
    raise ValueError(f'protocol {protocol!r}: expected one of {PROTOCOLS}')
