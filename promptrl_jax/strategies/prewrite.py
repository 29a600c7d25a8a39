"""PRewrite: one better statement for a task, chosen by its dev rewards.

Kong et al. 2024, PRewrite: Prompt Rewriting with Reinforcement Learning, arXiv
2401.08189. A rewriter reads a meta prompt and an instruction, never an input; a
frozen model answers the examples with the new instruction; the task's metric is
the reward.

  task --rewrite--> candidates --rewards--> [examples] each --select-->

PRewrite-I takes the one greedy rewrite, PRewrite-S the best on dev of K samples
at temperature 1. The environment writes the requests, as it does in training.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from promptrl_jax.envs.rewriting.env import RewritingEnv
from promptrl_jax.llm import progress
from promptrl_jax.llm.ask import warn_once
from promptrl_jax.llm.backend import Backend, Completion, Message, Request
from promptrl_jax.prompts.templates import Messages, PromptTooLongError
from promptrl_jax.types import Task

_CHOOSE_ON = ('dev', 'train_and_dev')


@dataclasses.dataclass(frozen=True)
class RewriteConfig:
  """How rewrites are drawn.

  Attributes:
    samples: K, the number of rewrites of PRewrite-S.
    temperature: sampling temperature of these rewrites.
    seed: of the first sample; samples of a task have seeds in a row.
    choose_on: the examples that choose among samples: `dev`, or `train_and_dev`
      where the task has few of them.
    rounds: of successive halving (Jamieson & Talwalkar 2016, arXiv 1502.07943):
      in each the better half goes on to twice as many of these examples, in the
      last to all; 1: all samples are asked all.
  """

  samples: int = 10
  temperature: float = 1.0
  seed: int = 0
  choose_on: str = 'dev'
  rounds: int = 1

  def __post_init__(self):
    if self.choose_on not in _CHOOSE_ON:
      raise ValueError(
        f'choose_on={self.choose_on!r}: expected {" or ".join(_CHOOSE_ON)}'
      )
    if self.rounds < 1:
      raise ValueError(f'rounds={self.rounds}: expected 1 or more')
    if self.samples < 1:
      raise ValueError(f'samples={self.samples}: expected 1 or more')
    if not self.temperature > 0:
      raise ValueError(
        f'temperature={self.temperature}: expected more than 0, since samples '
        'at 0 are all the same'
      )


@dataclasses.dataclass(frozen=True)
class Rewrite:
  """One rewrite of a statement.

  Attributes:
    request: all that the rewriter was given; None if it has no room for the
      statement, which then stays as it is.
    completion: its reply, or None.
    statement: the statement that the completion makes.
  """

  request: Request | None
  completion: Completion | None
  statement: str

  @property
  def reply(self) -> str:
    return self.completion.text if self.completion else ''

  def row(self, strategy: str) -> dict[str, Any]:
    """Returns the rewrite as JSON data."""
    asked, request = {}, self.request
    if request is not None:
      asked = {
        'messages': [dataclasses.astuple(m) for m in request.messages],
        'temperature': request.temperature,
        'seed': request.seed,
      }
    return {
      'strategy': strategy,
      **asked,
      'reply': self.reply,
      'instruction': self.statement,
    }


def rewrite_greedily(
  rewriter: Backend, env: RewritingEnv, tasks: Sequence[Task]
) -> list[Rewrite]:
  """Returns one rewrite of each task at temperature 0: PRewrite-I."""
  requests = [_request(rewriter, env, task) for task in tasks]
  return _complete(rewriter, env, tasks, requests)


def sample_rewrites(
  rewriter: Backend,
  env: RewritingEnv,
  tasks: Sequence[Task],
  config: RewriteConfig,
) -> list[list[Rewrite]]:
  """Returns K rewrites of each task, from one batched call."""
  repeated = [task for task in tasks for _ in range(config.samples)]
  seeds = [config.seed + i % config.samples for i in range(len(repeated))]
  requests = [
    _request(rewriter, env, task, config.temperature, seed)
    for task, seed in zip(repeated, seeds, strict=True)
  ]
  rewrites = _complete(rewriter, env, repeated, requests)
  starts = range(0, len(rewrites), config.samples)
  return [rewrites[start : start + config.samples] for start in starts]


def better_half(rewards: Sequence[np.ndarray]) -> list[int]:
  """Returns the half of the candidates that goes on, in their order.

  The first one, the initial statement, is always among them; of equals, those
  in front go on. Raises as `select`.
  """
  totals = _totals(rewards)
  order = sorted(range(len(totals)), key=lambda i: (i > 0, -totals[i], i))
  return sorted(order[: (len(order) + 1) // 2])


def select(rewards: Sequence[np.ndarray]) -> int:
  """Returns the candidate with the highest mean reward, the first of equals.

  With the initial statement in front, a rewrite must be better to be taken.

  Raises:
    ValueError: there are no candidates, they have different numbers of
      examples, or a reward is not finite.
  """
  return int(np.argmax(_totals(rewards)))


def _totals(rewards: Sequence[np.ndarray]) -> list[float]:
  sizes = {len(row) for row in rewards}
  if len(sizes) != 1 or 0 in sizes:
    raise ValueError(
      f'candidates were rewarded on {sorted(sizes)} examples: expected the '
      'same number, at least 1, for one or more candidates'
    )
  if not all(np.isfinite(row).all() for row in rewards):
    raise ValueError(
      'a reward is not finite: a result that the system lost is run again, '
      'never compared'
    )
  # Summed exactly, so that equal rewards in another order are a tie.
  return [math.fsum(row) for row in rewards]


def _request(
  rewriter: Backend,
  env: RewritingEnv,
  task: Task,
  temperature: float = 0.0,
  seed: int = 0,
) -> Request | None:
  def build(messages: Messages) -> Request:
    return Request(
      tuple(Message(*message) for message in messages),
      temperature=temperature,
      seed=seed,
      max_tokens=env.ask_config.rewrite_max_tokens,
      stop=env.rewrite_stop(task),
      scope=task.split,
    )

  fits = lambda messages: rewriter.fits(build(messages))
  try:
    return build(env.prompt(task, fits))
  except PromptTooLongError as error:
    warn_once(task.task_id, str(error))
    return None


def _complete(
  rewriter: Backend,
  env: RewritingEnv,
  tasks: Sequence[Task],
  requests: Sequence[Request | None],
) -> list[Rewrite]:
  asked = [request for request in requests if request is not None]
  replies = iter(progress.complete(rewriter, asked))
  rewrites = []
  for task, request in zip(tasks, requests, strict=True):
    reply = None if request is None else next(replies)
    statement = env.statement(task, reply.text) if reply else task.statement
    rewrites.append(Rewrite(request, reply, statement))
  return rewrites
