"""Checks replies to tasks: programs by unit tests, words by a metric.

A reply is a program for `UnitTests`, a text for `Answers`, and one text or one
program for each example for `Examples` and `ProgramExamples`. A failure of the
system is an outcome without a score, never a score of 0.
"""

from __future__ import annotations

import dataclasses
import functools
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Protocol

import numpy as np

from promptrl_jax.execution import Program, ProgramResult, TestResult
from promptrl_jax.rewards import deadline
from promptrl_jax.rewards import text as text_lib
from promptrl_jax.types import (
  Answers,
  Checker,
  Examples,
  ProgramExamples,
  Task,
  UnitTests,
)

Reply = str | tuple[str, ...]


class Pool(Protocol):
  """The part of an execution pool that is needed."""

  def submit(
    self, programs: Sequence[Program]
  ) -> list[Future[ProgramResult]]: ...


@dataclasses.dataclass(frozen=True, eq=False)
class Outcome:
  """The result of checking one reply.

  Attributes:
    status: `passed` if the score is 1, else `failed`, or for programs another
      status of `ProgramResult`.
    score: in [0, 1], the share of tests that pass or the mean of the metric
      over examples; None if the system failed.
    scores: of each test or example; empty if the system failed.
    reply: what was checked.
    tests: results of the unit tests, in order.
    message: the reason, where it concerns the reply as a whole.
    label_logps: log-probs of the tokens [N] of the first right answer of each
      example, where a reward asks for them.
  """

  status: str
  score: float | None
  scores: tuple[float, ...] = ()
  reply: Reply = ''
  tests: tuple[TestResult, ...] = ()
  message: str = ''
  label_logps: tuple[np.ndarray, ...] = ()

  @property
  def passed(self) -> bool:
    return self.status == 'passed'


def submit(
  pairs: Sequence[tuple[Checker, Reply]], pool: Pool | None = None
) -> list[Future[Outcome]]:
  """Checks replies; returns a future for each pair, in order.

  Programs go to the pool in one call; metrics are computed at once.

  Raises:
    ValueError: a checker has nothing to check by, a reply has another number of
      texts than there are examples, or a program has no pool.
  """
  programs: dict[int, list[Program]] = {}
  futures: dict[int, Future[Outcome]] = {}
  for i, (checker, reply) in enumerate(pairs):
    if isinstance(checker, UnitTests):
      programs[i] = [to_program(checker, reply)]
    elif isinstance(checker, ProgramExamples):
      programs[i] = _to_programs(checker, reply)
    else:
      futures[i] = Future()
      futures[i].set_result(check_words(checker, reply))
  if programs and pool is None:
    raise ValueError('unit tests need an execution pool, and none was given')
  flat = [program for some in programs.values() for program in some]
  results = iter(pool.submit(flat) if pool and flat else [])
  for i, some in programs.items():
    checker, reply = pairs[i]
    verdicts = [next(results) for _ in some]
    if isinstance(checker, UnitTests):
      to_outcome = functools.partial(program_outcome, reply=reply)
      futures[i] = _map(verdicts[0], to_outcome)
    else:
      futures[i] = _gather(
        verdicts, functools.partial(programs_outcome, reply=reply)
      )
  return [futures[i] for i in range(len(pairs))]


def check(
  pairs: Sequence[tuple[Checker, Reply]], pool: Pool | None = None
) -> list[Outcome]:
  """Waits for the outcomes of `submit`."""
  return [future.result() for future in submit(pairs, pool)]


def to_program(checker: UnitTests | Task, code: Reply) -> Program:
  """Returns a program with its tests, as the pool takes it."""
  if not isinstance(code, str):
    raise ValueError(f'a program is one text, got {len(code)} texts')
  return Program(
    code=code,
    tests=checker.tests,
    setup=checker.setup,
    entry_point=checker.entry_point,
  )


def _to_programs(checker: ProgramExamples, codes: Reply) -> list[Program]:
  if isinstance(codes, str) or len(codes) != len(checker.examples):
    raise ValueError(
      f'{1 if isinstance(codes, str) else len(codes)} programs for '
      f'{len(checker.examples)} tasks: expected one each'
    )
  if not codes:
    raise ValueError(
      'the checker holds no task: it is the visible part of a problem'
    )
  return [
    to_program(task, code)
    for task, code in zip(checker.examples, codes, strict=True)
  ]


def programs_outcome(
  results: Sequence[ProgramResult], reply: Reply = ()
) -> Outcome:
  """Returns the share of programs that pass all of their tests."""
  lost = [result for result in results if result.score is None]
  if lost:
    return dataclasses.replace(program_outcome(lost[0]), reply=reply)
  return words_outcome([float(result.passed) for result in results], reply)


def program_outcome(result: ProgramResult, reply: Reply = '') -> Outcome:
  """Returns the verdict of the pool as an outcome."""
  scored = result.score is not None
  return Outcome(
    status=result.status,
    score=result.score,
    scores=tuple(float(t.status == 'passed') for t in result.tests if scored),
    reply=reply,
    tests=result.tests,
    message=result.message,
  )


def check_words(checker: Answers | Examples, reply: Reply) -> Outcome:
  """Scores a reply in words; raises ValueError as `submit` does."""
  outputs = right_answers(checker)
  texts = (reply,) if isinstance(reply, str) else tuple(reply)
  if not outputs or not all(outputs):
    raise ValueError(
      'the checker holds no right answer: it is the visible part of a problem'
    )
  if len(texts) != len(outputs):
    raise ValueError(
      f'{len(texts)} answers for {len(outputs)} examples: expected one each'
    )
  text_lib.check_metric(checker.metric, checker.labels)
  metric = text_lib.METRICS[checker.metric]
  scores = [
    metric(text, right, checker.labels)
    for text, right in zip(texts, outputs, strict=True)
  ]
  return words_outcome(scores, reply)


def words_outcome(
  scores: Sequence[float],
  reply: Reply,
  label_logps: tuple[np.ndarray, ...] = (),
) -> Outcome:
  """Returns the outcome with these scores of each example."""
  score = float(np.mean(scores))
  status = 'passed' if score == 1 else 'failed'
  return Outcome(status, score, tuple(scores), reply, label_logps=label_logps)


def label_outcome(label_logps: Sequence[np.ndarray]) -> Outcome:
  """Returns the outcome of a task whose right answers were only scored.

  The score of an example is the geometric mean of its token probabilities.
  """
  scores = [float(np.exp(np.mean(row))) for row in label_logps]
  return words_outcome(scores, (), tuple(label_logps))


def right_answers(checker: Answers | Examples) -> list[tuple[str, ...]]:
  """Returns the right answers of each example."""
  if isinstance(checker, Answers):
    return [checker.outputs]
  return [example.outputs for example in checker.examples]


def _gather(
  futures: Sequence[Future], fn: Callable[[list[Any]], Outcome]
) -> Future[Outcome]:
  """A future of `fn` of all results."""
  gathered: Future[Outcome] = Future()
  left = len(futures)
  lock = threading.Lock()

  def done(_: Future) -> None:
    nonlocal left
    with lock:
      left -= 1
      is_last = left == 0
    if is_last:
      deadline.settle(gathered, lambda: fn([f.result() for f in futures]))

  for future in futures:
    future.add_done_callback(done)
  return gathered


def _map(future: Future, fn: Callable[[Any], Outcome]) -> Future[Outcome]:
  """A future of `fn` of the result; `fn` is quick."""
  mapped: Future[Outcome] = Future()
  future.add_done_callback(
    lambda done: deadline.settle(mapped, lambda: fn(done.result()))
  )
  return mapped
