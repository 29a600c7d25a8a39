"""Rewriting as an environment of one step, for training a rewriter.

  task --prompts--> (rewriter) --rewrite--> guards --> frozen model --reply-->
    checker (unit tests or a metric) --outcome--> reward

Rows of one task share the sampler seed of the model and the examples that it is
asked, so that their rewards differ by the rewrite alone (common random
numbers). `submit` leaves checks and rewards to other threads and processes, so
that a caller may sample the next batch while this one runs.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future

import numpy as np

from promptrl_jax.envs.rewriting.code import CodeForm
from promptrl_jax.envs.rewriting.config import RewritingConfig, make_reward_fn
from promptrl_jax.envs.rewriting.programs import ProgramsForm
from promptrl_jax.envs.rewriting.result import (
  Answered,
  PendingRewards,
  RewriteResult,
)
from promptrl_jax.envs.rewriting.words import WordsForm
from promptrl_jax.llm.ask import AskConfig
from promptrl_jax.llm.backend import Backend, BackendError, Completion, Request
from promptrl_jax.llm.scorer import as_scorer
from promptrl_jax.prompts import templates
from promptrl_jax.rewards import checking, deadline, registry
from promptrl_jax.rewards.checking import Outcome, Reply
from promptrl_jax.rewards.registry import RewardFn
from promptrl_jax.tasks import splits
from promptrl_jax.types import Checker, ProgramExamples, Task, UnitTests


@dataclasses.dataclass(frozen=True)
class _Question:
  """All that the model is asked about one row.

  Attributes:
    requests: one for a program or an answer, one per example otherwise.
    labels: right answers whose log-probs are needed, one per request, or none.
  """

  requests: tuple[Request, ...]
  labels: tuple[str, ...]


@dataclasses.dataclass(frozen=True, eq=False)
class Answer:
  """The model's answer to a question.

  Attributes:
    requests: as in the question.
    completions: one per request, or none if they are not needed.
    label_logps: log-probs of right answers, one row per request, or none.
  """

  requests: tuple[Request, ...]
  completions: tuple[Completion, ...]
  label_logps: tuple[np.ndarray, ...]


@dataclasses.dataclass(frozen=True)
class _Row:
  """A row without a flag, on its way to a reward."""

  task: Task
  rewrite: str
  statement: str
  checker: Checker
  question: _Question


class RewritingEnv:
  """Rewards rewrites by the replies of a frozen model; a `RewriteEnv`."""

  def __init__(
    self,
    model: Backend,
    pool: checking.Pool | None,
    config: RewritingConfig = RewritingConfig(),
    ask: AskConfig = AskConfig(),
    *,
    protocol: str = 'visible1',
    reward_fn: RewardFn | None = None,
  ):
    """Combines a model, a pool and a reward.

    Args:
      model: the frozen model that replies to rewrites.
      pool: runs its programs; None if no task is checked by unit tests.
      config: settings.
      ask: how the model is asked, each request at `first_temperature`.
      protocol: the tests that the model is shown; all are run.
      reward_fn: instead of that of `config`. A row for which it raises, hangs
        or gives no finite number is dropped.

    Raises:
      ValueError: the reward needs log-probs that the model cannot give, or the
        protocol is not known.
    """
    splits.check_protocol(protocol)
    self.config = config
    self.ask_config = ask
    self.protocol = protocol
    self.reward_fn = reward_fn or make_reward_fn(config)
    self._model = model
    self._pool = pool
    self._needs = registry.REWARDS['score' if reward_fn else config.reward]
    if self._needs.uses_label_logps:
      as_scorer(model)
    self._code = CodeForm(model, config, ask, protocol)
    self._words = WordsForm(model, config, ask)
    self._programs = ProgramsForm(model, config, ask, protocol)
    # The model is asked by one thread at a time, except for threads that hang.
    self._turn = threading.Lock()

  def prompt(
    self, task: Task, fits: templates.FitsFn = lambda _: True
  ) -> templates.Messages:
    """Returns the rewriter's messages for a task."""
    return self._form(task).prompt(task, fits)

  def prompts(
    self, tasks: Sequence[Task], fits: templates.FitsFn = lambda _: True
  ) -> list[templates.Messages]:
    """Returns the rewriter's messages, one conversation per task."""
    return [self.prompt(task, fits) for task in tasks]

  def rewrite_stop(self, task: Task) -> tuple[str, ...]:
    """Returns the strings that a rewrite of a task does not go beyond."""
    return self._form(task).rewrite_stop

  def statement(self, task: Task, rewrite: str) -> str:
    """Returns the statement of a rewrite; the old one if it is not usable."""
    return self._form(task).statement(task, rewrite)

  def requests(
    self, task: Task, statement: str, seed: int = 0
  ) -> tuple[Request, ...]:
    """Returns the requests to the frozen model about a statement.

    One for a program or an answer, one per example for an instruction; none if
    the model has no room for the shortest request for a program.
    """
    return self._form(task).requests(task, statement, seed)

  def fits(self, task: Task, statement: str) -> bool:
    """Whether the model takes the statement with every example of the task."""
    return all(map(self._model.fits, self.requests(task, statement)))

  def ask(
    self,
    tasks: Sequence[Task],
    statements: Sequence[str],
    checkers: Sequence[Checker] | None = None,
    seed: int = 0,
  ) -> tuple[list[Answer], list[Outcome]]:
    """Asks the model about statements and checks its replies, for evaluation.

    All requests go to the model in one call, all programs to the pool in one.
    Tasks are of any split; without `checkers`, those of the tasks count. The
    seed is that of the sampler, where the model is asked above temperature 0.

    Raises:
      BackendError: the model cannot be reached.
    """
    if checkers is None:
      checkers = [task.checker for task in tasks]
    rows = [
      _Row(task, '', statement, checker, self._question(task, statement, seed))
      for task, statement, checker in zip(
        tasks, statements, checkers, strict=True
      )
    ]
    answers = self._complete([row.question for row in rows])
    return answers, [f.result() for f in self._check(rows, answers)]

  def rewards(
    self,
    tasks: Sequence[Task],
    rewrites: Sequence[str],
    seed: int,
    finished: Sequence[bool] | None = None,
  ) -> RewriteResult:
    """Returns the result of `submit`."""
    return self.submit(tasks, rewrites, seed, finished).result()

  def submit(
    self,
    tasks: Sequence[Task],
    rewrites: Sequence[str],
    seed: int,
    finished: Sequence[bool] | None = None,
  ) -> PendingRewards:
    """Asks the model and queues the checks of its replies.

    Args:
      tasks: of the training split, because the hidden part of the checker is
        used for reward.
      rewrites: the rewriter's completion for each row.
      seed: of the batch; the sampler seed of the model and the examples of an
        instruction depend on it and on the task.
      finished: False for a completion that the length limit cut off.

    Raises:
      ValueError: a task is not of the training split, or the lengths differ.
      BackendError: the model cannot be reached; in the background, `result`
        raises it.
    """
    finished = [True] * len(tasks) if finished is None else finished
    if not len(tasks) == len(rewrites) == len(finished) > 0:
      raise ValueError(
        f'{len(tasks)} tasks, {len(rewrites)} rewrites and {len(finished)} '
        'marks of the end: expected one of each per row, and at least one row'
      )
    drawn, checkers = self._draw(tasks, seed)
    read = [
      self._read(task, drawn[task.task_id], rewrite, whole)
      for task, rewrite, whole in zip(tasks, rewrites, finished, strict=True)
    ]
    rows = {}
    for i, (flag, statement) in enumerate(read):
      if not flag:
        task = drawn[tasks[i].task_id]
        question = self._question(task, statement, seed, rewarded=True)
        checker = checkers[task.task_id]
        rows[i] = _Row(task, rewrites[i], statement, checker, question)
    count = len(tasks)
    unfinished = RewriteResult(
      rewards=np.full(count, np.nan, np.float32),
      task_ids=tuple(task.task_id for task in tasks),
      flags=tuple(flag for flag, _ in read),
      dropped=('',) * count,
      outcomes=(None,) * count,
      statements=tuple(statement for _, statement in read),
      replies=('',) * count,
      calls=sum(len(row.question.requests) for row in rows.values()),
    )
    work = functools.partial(self._reward, rows)
    background = self.config.background
    answered = deadline.begin(work) if background else deadline.settled(work())
    return PendingRewards(
      unfinished, answered, self.config.timeout_s, background
    )

  def _form(self, task: Task) -> CodeForm | WordsForm:
    if isinstance(task.checker, UnitTests):
      return self._code
    if isinstance(task.checker, ProgramExamples):
      return self._programs
    return self._words

  def _draw(
    self, tasks: Sequence[Task], seed: int
  ) -> tuple[dict[str, Task], dict[str, Checker]]:
    """Tasks as this batch sees them, and what rewards them, by id."""
    by_id = {task.task_id: task for task in tasks}
    drawn = {
      name: self._form(task).draw(task, seed) for name, task in by_id.items()
    }
    checkers = {
      name: splits.for_reward(splits.reveal_for_training(task, self.protocol))
      for name, task in drawn.items()
    }
    return drawn, checkers

  def _read(
    self, task: Task, drawn: Task, rewrite: str, finished: bool
  ) -> tuple[str, str]:
    """Why the rewrite is flagged, or ''; and the statement that it makes."""
    if self.config.allow_keep and finished and not rewrite.strip():
      return '', task.statement
    return self._form(task).flag(task, drawn, rewrite, finished)

  def _question(
    self, task: Task, statement: str, seed: int = 0, *, rewarded: bool = False
  ) -> _Question:
    labels, requests = (), self.requests(task, statement, seed)
    if self._needs.uses_programs:
      # A reference is scored for reward alone, which only training tasks get.
      labels = self._code.labels(task) if rewarded and requests else ()
    elif self._needs.uses_label_logps:
      labels = self._words.labels(task)
    return _Question(requests, labels)

  def _reward(self, rows: dict[int, _Row]) -> Answered:
    """Asks the model, then leaves checks and rewards to other threads."""
    started = time.perf_counter()
    questions = list(dict.fromkeys(row.question for row in rows.values()))
    with self._turn:
      if self.config.background:
        answers = deadline.each(
          self._complete, questions, self.config.timeout_s, BackendError
        )
      else:
        answers = self._complete(questions)
    seconds = time.perf_counter() - started
    by_question = dict(zip(questions, answers, strict=True))
    of_row = {i: by_question[row.question] for i, row in rows.items()}
    answered = {i: a for i, a in of_row.items() if isinstance(a, Answer)}
    futures: dict[int, Future] = {
      i: deadline.failed(answer)
      for i, answer in of_row.items()
      if not isinstance(answer, Answer)
    }
    outcomes = self._check([rows[i] for i in answered], [*answered.values()])
    for i, outcome in zip(answered, outcomes, strict=True):
      judge = functools.partial(self._judge, rows[i])
      futures[i] = deadline.then(outcome, judge)
    completions = [c for a in answered.values() for c in a.completions]
    return Answered(
      rewarded={i: futures[i] for i in rows},
      replies={i: self._reply(rows[i], a) for i, a in answered.items()},
      prompt_tokens=sum(c.prompt_tokens for c in completions),
      completion_tokens=sum(c.completion_tokens for c in completions),
      seconds=seconds,
      span=deadline.Span(futures.values()),
    )

  def _complete(self, questions: Sequence[_Question]) -> list[Answer]:
    """One batched call for all questions; equal requests share an answer."""
    requests = [r for q in questions for r in q.requests]
    replies: dict[Request, Completion] = {}
    if self._needs.uses_reply:
      distinct = list(dict.fromkeys(requests))
      completions = self._model.complete(distinct) if distinct else []
      replies = dict(zip(distinct, completions, strict=True))
    labels = [label for q in questions for label in q.labels]
    logps = []
    if labels:
      # A program goes on where its request ends.
      prefix = '' if self._needs.uses_programs else self.config.label_prefix
      scored = [r for q in questions if q.labels for r in q.requests]
      logps = as_scorer(self._model).score(scored, labels, prefix)
    rows = iter(logps)  # One for each label, question by question.
    return [
      Answer(
        q.requests,
        tuple(replies[r] for r in q.requests if r in replies),
        tuple(next(rows) for _ in q.labels),
      )
      for q in questions
    ]

  def _reply(self, row: _Row, answer: Answer) -> Reply:
    if not self._needs.uses_reply:
      return ''
    form = self._form(row.task)
    return form.reply(row.task, row.statement, answer.completions)

  def _check(
    self, rows: Sequence[_Row], answers: Sequence[Answer]
  ) -> list[Future[Outcome]]:
    """Outcomes of the model's answers."""
    if not self._needs.uses_reply:
      return [
        deadline.settled(checking.label_outcome(a.label_logps)) for a in answers
      ]
    futures = checking.submit(
      [
        (row.checker, self._reply(row, answer))
        for row, answer in zip(rows, answers, strict=True)
      ],
      self._pool,
    )
    if not self._needs.uses_label_logps:
      return futures
    return [
      deadline.then(
        future,
        functools.partial(_with_label_logps, label_logps=answer.label_logps),
      )
      for future, answer in zip(futures, answers, strict=True)
    ]

  def _judge(self, row: _Row, outcome: Outcome) -> tuple[Outcome, float]:
    """The reward, or an exception that says why there is none."""
    if outcome.score is None:
      raise RuntimeError(f'{outcome.status}: {outcome.message}')
    value = float(self.reward_fn(row.task, row.rewrite, outcome))
    if not math.isfinite(value):
      raise ValueError(f'the reward is {value}, expected a finite number')
    return outcome, value


def _with_label_logps(
  outcome: Outcome, label_logps: tuple[np.ndarray, ...]
) -> Outcome:
  return dataclasses.replace(outcome, label_logps=label_logps)
