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
from promptrl_jax.llm.backend import Backend, Message, Request
from promptrl_jax.types import Task


@dataclasses.dataclass(frozen=True)
class RewriteConfig:
  """How rewrites are drawn.

  Attributes:
    samples: K, the number of rewrites of PRewrite-S.
    temperature: sampling temperature of these rewrites.
    max_tokens: most tokens of a rewrite.
    seed: of the first sample; samples of a task have seeds in a row.
  """

  samples: int = 10
  temperature: float = 1.0
  max_tokens: int = 64
  seed: int = 0

  def __post_init__(self):
    if self.samples < 1 or self.max_tokens < 1:
      raise ValueError(
        f'samples={self.samples} and max_tokens={self.max_tokens}: expected at '
        'least 1 of both'
      )
    if not self.temperature > 0:
      raise ValueError(
        f'temperature={self.temperature}: expected more than 0, since samples '
        'at 0 are all the same'
      )


@dataclasses.dataclass(frozen=True)
class Rewrite:
  """One rewrite of a statement.

  Attributes:
    request: all that the rewriter was given.
    reply: its completion.
    statement: the statement that the completion makes.
  """

  request: Request
  reply: str
  statement: str

  def row(self, strategy: str) -> dict[str, Any]:
    """Returns the rewrite as JSON data."""
    return {
      'strategy': strategy,
      'messages': [dataclasses.astuple(m) for m in self.request.messages],
      'temperature': self.request.temperature,
      'seed': self.request.seed,
      'reply': self.reply,
      'instruction': self.statement,
    }


def rewrite_greedily(
  rewriter: Backend,
  env: RewritingEnv,
  tasks: Sequence[Task],
  config: RewriteConfig,
) -> list[Rewrite]:
  """Returns one rewrite of each task at temperature 0: PRewrite-I."""
  requests = [_request(env, task, config.max_tokens) for task in tasks]
  return _complete(rewriter, env, tasks, requests)


def sample_rewrites(
  rewriter: Backend,
  env: RewritingEnv,
  tasks: Sequence[Task],
  config: RewriteConfig,
) -> list[list[Rewrite]]:
  """Returns K rewrites of each task, from one batched call."""
  repeated = [task for task in tasks for _ in range(config.samples)]
  requests = [
    _request(
      env,
      task,
      config.max_tokens,
      config.temperature,
      config.seed + i % config.samples,
    )
    for i, task in enumerate(repeated)
  ]
  rewrites = _complete(rewriter, env, repeated, requests)
  starts = range(0, len(rewrites), config.samples)
  return [rewrites[start : start + config.samples] for start in starts]


def select(rewards: Sequence[np.ndarray]) -> int:
  """Returns the candidate with the highest mean reward, the first of equals.

  With the initial statement in front, a rewrite must be better to be taken.

  Raises:
    ValueError: there are no candidates, they have different numbers of
      examples, or a reward is not finite.
  """
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
  totals = [math.fsum(row) for row in rewards]
  return int(np.argmax(totals))


def _request(
  env: RewritingEnv,
  task: Task,
  max_tokens: int,
  temperature: float = 0.0,
  seed: int = 0,
) -> Request:
  messages = tuple(Message(*message) for message in env.prompt(task))
  return Request(
    messages, temperature=temperature, seed=seed, max_tokens=max_tokens
  )


def _complete(
  rewriter: Backend,
  env: RewritingEnv,
  tasks: Sequence[Task],
  requests: Sequence[Request],
) -> list[Rewrite]:
  return [
    Rewrite(request, reply.text, env.statement(task, reply.text))
    for task, request, reply in zip(
      tasks, requests, rewriter.complete(requests), strict=True
    )
  ]
