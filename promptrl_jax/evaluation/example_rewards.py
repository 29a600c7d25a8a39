"""Rewards of statements on each example of their tasks.

Reports want them, and a choice of the examples that are worth training on.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from promptrl_jax.envs.rewriting.env import RewritingEnv
from promptrl_jax.rewards import checking
from promptrl_jax.rewards.checking import Outcome
from promptrl_jax.tasks import instructions, splits
from promptrl_jax.types import Examples, ProgramExamples, Task


def example_rewards(
  env: RewritingEnv,
  tasks: Sequence[Task],
  statements: Sequence[str],
  answers: int = 1,
  first: int = 0,
) -> list[np.ndarray]:
  """Asks the frozen model about statements and rewards each of its replies.

  A program counts if it passes the tests that the protocol hides. All requests
  of one seed go to the model in one batched call.

  Args:
    env: asks and rewards.
    tasks: of any split.
    statements: one for each task.
    answers: of the model to each request, with seeds in a row, whose rewards
      are averaged; above temperature 0 they differ.
    first: the first of these seeds.

  Returns:
    For each statement the rewards [examples of its task], float64, whose mean
    is that of the statement; a program or an answer is one example.

  Raises:
    BackendError: the model cannot be reached.
    RuntimeError: the system failed on a program.
  """
  by_answer = [
    _of_seed(env, tasks, statements, seed)
    for seed in range(first, first + answers)
  ]
  return [np.mean(rows, axis=0) for rows in zip(*by_answer, strict=True)]


def with_solvable_examples(
  env: RewritingEnv, tasks: Sequence[Task], answers: int
) -> list[Task]:
  """Returns instructions with the examples that one of their answers gets.

  What none of them gets rarely tells rewrites apart, and makes a batch longer.

  Args:
    env: asks the frozen model; several answers need a temperature above 0.
    tasks: instructions of the training split.
    answers: to each example with the instruction as it is.

  Raises:
    ValueError: an instruction has no example left.
  """
  statements = [task.statement for task in tasks]
  rewarded = example_rewards(env, tasks, statements, answers)
  kept = []
  for task, rewards in zip(tasks, rewarded, strict=True):
    solved = itertools.compress(instructions.applied_to(task), rewards > 0)
    if not (examples := list(solved)):
      raise ValueError(
        f'instruction {task.statement[:60]!r}: none of {len(rewards)} examples '
        f'is solved by one of {answers} answers: expected a model that solves '
        'some, or more answers'
      )
    kept.append(instructions.with_examples(task, examples))
  return kept


def _of_seed(
  env: RewritingEnv, tasks: Sequence[Task], statements: Sequence[str], seed: int
) -> list[np.ndarray]:
  checkers = [splits.hidden(task, env.protocol) for task in tasks]
  _, outcomes = env.ask(tasks, statements, checkers, seed)
  for task, outcome in zip(tasks, outcomes, strict=True):
    if outcome.score is None:
      raise RuntimeError(f'{task.task_id}: {outcome.status}: {outcome.message}')
  return [
    np.array(
      [env.reward_fn(part, text, result) for part, result in _parts(task, o)],
      np.float64,
    )
    for task, text, o in zip(tasks, statements, outcomes, strict=True)
  ]


def _parts(task: Task, outcome: Outcome) -> Iterator[tuple[Task, Outcome]]:
  """The task and its outcome for each example alone."""
  if not isinstance(task.checker, (Examples, ProgramExamples)):
    yield task, outcome
    return
  for i, example in enumerate(task.checker.examples):
    one = slice(i, i + 1)
    result = dataclasses.replace(
      checking.words_outcome(outcome.scores[one], outcome.reply[one]),
      label_logps=outcome.label_logps[one],
    )
    yield instructions.with_examples(task, [example]), result
