"""PRewrite: one better instruction for a task, found with its dev examples.

Kong et al. 2024, PRewrite: Prompt Rewriting with Reinforcement Learning, arXiv
2401.08189. A rewriter reads a meta prompt and an instruction, never an input; a
frozen task model answers the examples with the new instruction; the task's
metric is the reward.

  Instruction --rewrite--> Candidates --rewards--> [examples] each --select-->

PRewrite-I takes the one greedy rewrite, PRewrite-S the best on dev of K samples
at temperature 1. Training needs `rewards` alone: what each of a group of
rewrites is worth on the same examples.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from promptrl_jax.llm.backend import Backend, Completion, Message, Request
from promptrl_jax.llm.scorer import as_scorer
from promptrl_jax.prompts import meta as meta_lib
from promptrl_jax.prompts.meta import MetaPrompt
from promptrl_jax.rewards import text as text_lib
from promptrl_jax.tasks.instructions import (
  Example,
  Instruction,
  InstructionTask,
)

# (task, instruction) pairs -> rewards [examples of the task] of each pair.
RewardFn = Callable[
  [Sequence[tuple[InstructionTask, Instruction]]], list[np.ndarray]
]


@dataclasses.dataclass(frozen=True)
class RewriteConfig:
  """How rewrites are drawn.

  Attributes:
    samples: K, of PRewrite-S.
    temperature: of these samples.
    max_tokens: of a rewrite.
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
  """What was asked of a rewriter and what it answered.

  Attributes:
    request: all that it was given.
    reply: its answer.
    instruction: what was read from it.
  """

  request: Request
  reply: str
  instruction: Instruction

  def row(self, strategy: str) -> dict[str, Any]:
    """The rewrite as JSON data."""
    return {
      'strategy': strategy,
      'messages': [dataclasses.astuple(m) for m in self.request.messages],
      'temperature': self.request.temperature,
      'seed': self.request.seed,
      'reply': self.reply,
      'instruction': self.instruction.text,
    }


def rewrite_request(
  meta: MetaPrompt,
  instruction: Instruction,
  max_tokens: int,
  temperature: float = 0.0,
  seed: int = 0,
) -> Request:
  """A request for one rewrite; made of meta prompt and instruction alone."""
  messages = meta_lib.render(meta, instruction.text)
  return Request(
    tuple(Message(role, content) for role, content in messages),
    temperature=temperature, seed=seed, max_tokens=max_tokens,
  )  # fmt: skip


def rewrite_greedily(
  rewriter: Backend,
  meta: MetaPrompt,
  instructions: Sequence[Instruction],
  config: RewriteConfig,
) -> list[Rewrite]:
  """One rewrite of each instruction at temperature 0: PRewrite-I."""
  requests = [
    rewrite_request(meta, instruction, config.max_tokens)
    for instruction in instructions
  ]
  replies = rewriter.complete(requests)
  return _read(requests, replies, instructions)


def sample_rewrites(
  rewriter: Backend,
  meta: MetaPrompt,
  instructions: Sequence[Instruction],
  config: RewriteConfig,
) -> list[list[Rewrite]]:
  """K rewrites of each instruction, in one batched call."""
  repeated = [i for i in instructions for _ in range(config.samples)]
  requests = [
    rewrite_request(
      meta, instruction, config.max_tokens, config.temperature,
      config.seed + place % config.samples,
    )
    for place, instruction in enumerate(repeated)
  ]  # fmt: skip
  rewrites = _read(requests, rewriter.complete(requests), repeated)
  starts = range(0, len(rewrites), config.samples)
  return [rewrites[start : start + config.samples] for start in starts]


def make_reward_fn(
  task_model: Backend,
  metric: str = 'auto',
  max_tokens: int = 64,
  stop: tuple[str, ...] = (),
  label_prefix: str = '\n',
) -> RewardFn:
  """What instructions are worth, by the answers of a frozen task model.

  The function returned is pure if the model is: it answers at temperature 0,
  and every instruction of a task meets the same examples. All pairs go to the
  model in one batched call.

  Args:
    task_model: the model; cache it, since examples come back.
    metric: as for `rewards.text.make_metric`.
    max_tokens, stop: of an answer.
    label_prefix: what stands between a prompt and the label that is scored.

  Raises:
    ValueError: the metric needs log-probs that the model cannot give. Unknown
      metrics, and metrics that do not suit a task, are refused by the function.
  """
  if metric in ('perplexity', 'perplexity_f1'):
    as_scorer(task_model)

  def rewards(
    pairs: Sequence[tuple[InstructionTask, Instruction]],
  ) -> list[np.ndarray]:
    jobs = [
      (task, example, text_lib.make_metric(metric, task.task), request)
      for task, instruction in pairs
      for example in task.examples
      for request in [
        _answer_request(task, instruction, example, max_tokens, stop)
      ]
    ]
    values = iter(_score(task_model, jobs, label_prefix))
    return [
      np.fromiter(values, np.float64, len(task.examples)) for task, _ in pairs
    ]

  return rewards


def fits(
  task_model: Backend,
  task: InstructionTask,
  instruction: Instruction,
  max_tokens: int,
) -> bool:
  """Whether the model takes the instruction with every example of the task."""
  return all(
    task_model.fits(_answer_request(task, instruction, example, max_tokens))
    for example in task.examples
  )


def _answer_request(
  task: InstructionTask,
  instruction: Instruction,
  example: Example,
  max_tokens: int,
  stop: tuple[str, ...] = (),
) -> Request:
  prompt = task.prompt(instruction, example)
  return Request((Message('user', prompt),), max_tokens=max_tokens, stop=stop)


_Job = tuple[InstructionTask, Example, text_lib.Metric, Request]


def _score(
  task_model: Backend, jobs: Sequence[_Job], label_prefix: str
) -> np.ndarray:
  """The reward of each job, float64."""
  values = np.zeros(len(jobs))
  told = [i for i, job in enumerate(jobs) if job[2].text_fn]
  replies = task_model.complete([jobs[i][3] for i in told]) if told else []
  for i, reply in zip(told, replies, strict=True):
    task, example, metric, _ = jobs[i]
    assert metric.text_fn is not None
    values[i] = metric.text_fn(reply.text, example.outputs, task.labels)
  weighed = [i for i, job in enumerate(jobs) if job[2].uses_logps]
  if weighed:
    logps = as_scorer(task_model).score(
      [jobs[i][3] for i in weighed],
      [jobs[i][1].outputs[0] for i in weighed],
      label_prefix,
    )
    for i, row in zip(weighed, logps, strict=True):
      values[i] += text_lib.perplexity_reward(row)
  return values


def select(rewards: Sequence[np.ndarray]) -> int:
  """The candidate with the highest mean reward, the first of equal ones.

  With the initial instruction in front, a rewrite must be better to be taken.

  Raises:
    ValueError: there are no candidates, they met different examples, or a
      reward is not finite.
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


def subsample(
  task: InstructionTask, limit: int, seed: int = 0
) -> InstructionTask:
  """The task with at most `limit` examples, 0 for all.

  They depend on the task and the seed and on nothing else, so that whatever is
  compared meets the same ones (common random numbers).
  """
  if limit < 0:
    raise ValueError(f'limit={limit}: expected 0 for all, or more')
  if not limit or limit >= len(task.examples):
    return task
  content = repr((seed, task.key)).encode()
  rng = random.Random(hashlib.sha256(content).digest())
  places = sorted(rng.sample(range(len(task.examples)), limit))
  examples = tuple(task.examples[i] for i in places)
  return dataclasses.replace(task, examples=examples)


def _read(
  requests: Sequence[Request],
  replies: Sequence[Completion],
  instructions: Sequence[Instruction],
) -> list[Rewrite]:
  return [
    Rewrite(
      request,
      reply.text,
      instruction.rewritten(meta_lib.read(reply.text)),
    )
    for request, reply, instruction in zip(
      requests, replies, instructions, strict=True
    )
  ]
