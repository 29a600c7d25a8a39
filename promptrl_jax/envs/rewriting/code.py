"""Rewriting as an environment of one step, for training a rewriter.

  task --prompts--> (rewriter) --rewrite--> guards --> coder --> pool --> reward

Rows are independent: a group of rewrites of one task is so many rows of that
task. The coder answers rows of one task with the same sampler seed, so that
what tells their rewards apart is the rewrite. `submit` asks the coder at once
and leaves the programs to the pool, so that a caller may sample the next batch
while this one runs.
"""

from __future__ import annotations

import functools
import logging
import math
import time
import zlib
from collections.abc import Sequence

import numpy as np

from promptrl_jax.envs.rewriting.config import (
  RewardFn,
  RewritingConfig,
  make_reward_fn,
)
from promptrl_jax.envs.rewriting.result import (
  UNUSABLE,
  PendingRewards,
  RewriteResult,
)
from promptrl_jax.execution import ExecutionPool, Program, ProgramResult
from promptrl_jax.llm.backend import Backend, Completion, Message, Request
from promptrl_jax.prompts import templates
from promptrl_jax.rewards import deadline, guards
from promptrl_jax.tasks import splits
from promptrl_jax.types import Problem, Task

_LOG = logging.getLogger(__name__)


def coder_seed(seed: int, task_id: str) -> int:
  """Sampler seed of all rows of a task in one batch."""
  return zlib.crc32(f'{seed}/{task_id}'.encode())


class RewritingEnv:
  """Rewrites in, rewards out.

  Attributes:
    config: the settings.
  """

  def __init__(
    self,
    coder: Backend,
    pool: ExecutionPool,
    config: RewritingConfig = RewritingConfig(),
    reward_fn: RewardFn | None = None,
  ):
    """Puts the parts together.

    Args:
      coder: the frozen model that answers rewrites.
      pool: runs its programs.
      config: settings.
      reward_fn: instead of that of `config`. A sample for which it raises,
        hangs or gives no finite number is dropped.
    """
    self.config = config
    self._coder = coder
    self._pool = pool
    self._reward_fn = reward_fn or make_reward_fn(config)
    self._template = templates.TEMPLATES[config.template]

  def prompts(
    self, tasks: Sequence[Task], fits: templates.FitsFn = lambda _: True
  ) -> list[templates.Messages]:
    """What the rewriter is asked, one conversation per task.

    `Tokenizer.render` makes token ids of them.

    Args:
      tasks: what to rewrite.
      fits: whether the rewriter takes these messages; see `templates.fit`.
    """
    return [
      templates.fit(self._template.rewriter, _rewrite_prompt(task), fits)
      for task in tasks
    ]

  def rewards(
    self,
    tasks: Sequence[Task],
    rewrites: Sequence[str],
    seed: int,
    finished: Sequence[bool] | None = None,
  ) -> RewriteResult:
    """`submit`, and its result."""
    return self.submit(tasks, rewrites, seed, finished).result()

  def submit(
    self,
    tasks: Sequence[Task],
    rewrites: Sequence[str],
    seed: int,
    finished: Sequence[bool] | None = None,
  ) -> PendingRewards:
    """Asks the coder, in the caller's thread, and queues its programs.

    Args:
      tasks: the task of each row; of the training split, because all its tests
        are run for reward.
      rewrites: what the rewriter wrote for it.
      seed: of the batch; the coder's sampler seed is made of it and the task.
      finished: False for a rewrite that the limit cut off.

    Raises:
      ValueError: a task is not of the training split, or the lengths differ.
      BackendError: the coder cannot be reached.
    """
    finished = [True] * len(tasks) if finished is None else finished
    if not len(tasks) == len(rewrites) == len(finished) > 0:
      raise ValueError(
        f'{len(tasks)} tasks, {len(rewrites)} rewrites and {len(finished)} '
        'marks of the end: expected one of each per row, and at least one row'
      )
    problems = [
      splits.reveal_for_training(task, self.config.protocol) for task in tasks
    ]
    flags, statements = [], []
    for row in zip(tasks, problems, rewrites, finished, strict=True):
      flag, statement = self._read(*row)
      flags.append(flag)
      statements.append(statement)
    started = time.perf_counter()
    codes, answers = self._ask(problems, statements, flags, seed)
    seconds = time.perf_counter() - started
    judged = self._pool.submit(
      [
        Program(
          code=code,
          tests=problems[i].visible_tests + problems[i].reward_tests,
          setup=problems[i].setup,
          entry_point=problems[i].entry_point,
        )
        for i, code in codes.items()
      ]
    )
    rewarded = {
      i: deadline.then(
        future, functools.partial(self._judge, tasks[i], rewrites[i])
      )
      for i, future in zip(codes, judged, strict=True)
    }
    count = len(tasks)
    unfinished = RewriteResult(
      rewards=np.zeros(count, np.float32),
      flags=tuple(flags),
      dropped=('',) * count,
      verdicts=(None,) * count,
      statements=tuple(statements),
      codes=tuple(codes.get(i, '') for i in range(count)),
      calls=len(answers),
      prompt_tokens=sum(answer.prompt_tokens for answer in answers),
      completion_tokens=sum(answer.completion_tokens for answer in answers),
      generate_seconds=seconds,
    )
    return PendingRewards(unfinished, rewarded, self.config.timeout_s)

  def _read(
    self, task: Task, problem: Problem, rewrite: str, finished: bool
  ) -> tuple[str, str]:
    """Why the rewrite is flagged, or ''; and the statement that it makes."""
    if self.config.allow_keep and finished and not rewrite.strip():
      return '', task.statement
    found = guards.flag(
      rewrite, task, problem.visible_tests, self.config.guards
    )
    if found or not finished:
      return found or 'overlong', ''
    prompt = _rewrite_prompt(task)
    statement = self._template.rewritten(prompt, rewrite)
    # What the template falls back on, unless that is what was written.
    fallback = self._template.rewritten(prompt, '')
    if statement == fallback and fallback not in ' '.join(rewrite.split()):
      return UNUSABLE, ''
    return '', statement

  def _ask(
    self,
    problems: Sequence[Problem],
    statements: Sequence[str],
    flags: Sequence[str],
    seed: int,
  ) -> tuple[dict[int, str], list[Completion]]:
    """One batched call for the rows without a flag.

    Returns:
      Program of each such row, and all answers. Rows that ask the same share an
      answer, and each counts as a call.
    """
    prompts = {
      i: templates.CoderPrompt(
        statements[i], problem.signature, problem.visible_tests
      )
      for i, problem in enumerate(problems)
      if not flags[i]
    }
    requests = {
      i: self._request(prompt, problems[i].task_id, seed)
      for i, prompt in prompts.items()
    }
    distinct = list(dict.fromkeys(r for r in requests.values() if r))
    answers = self._coder.complete(distinct) if distinct else []
    found = dict(zip(distinct, answers, strict=True))
    codes = {
      i: self._template.program(prompts[i], found[request].text)
      if request
      else ''
      for i, request in requests.items()
    }
    return codes, [found[r] for r in requests.values() if r]

  def _request(
    self, prompt: templates.CoderPrompt, task_id: str, seed: int
  ) -> Request | None:
    """None if the context cannot take it: a failure of the model."""

    def build(messages: templates.Messages) -> Request:
      return Request(
        tuple(Message(role, content) for role, content in messages),
        temperature=self.config.temperature,
        top_p=self.config.top_p,
        # Greedy requests that are equal are to compare equal.
        seed=coder_seed(seed, task_id) if self.config.temperature else 0,
        max_tokens=self.config.max_tokens,
      )

    try:
      return build(
        templates.fit(
          self._template.coder, prompt, lambda m: self._coder.fits(build(m))
        )
      )
    except templates.PromptTooLongError as error:
      _LOG.warning('%s: %s', task_id, error)
      return None

  def _judge(
    self, task: Task, rewrite: str, verdict: ProgramResult
  ) -> tuple[ProgramResult, float]:
    """The reward, or an exception that says why there is none."""
    if verdict.score is None:
      raise RuntimeError(f'{verdict.status}: {verdict.message}')
    value = float(self._reward_fn(task, rewrite, verdict))
    if not math.isfinite(value):
      raise ValueError(f'the reward is {value}, expected a finite number')
    return verdict, value


def _rewrite_prompt(task: Task) -> templates.RewritePrompt:
  """As `EditingEnv` asks before the first program."""
  return templates.RewritePrompt(task.statement, task.entry_point)
