"""Rewriting instructions as an environment of one step, for training.

  Instruction --prompts--> (rewriter) --rewrite--> guards --> task model
    --> metric on a minibatch of examples --> reward

PRewrite (Kong et al. 2024, arXiv 2401.08189, section 3). The rewriter is handed
an `Instruction`, which has no field for an input. All rewrites of an
instruction in one batch meet the same examples (common random numbers), so that
what tells their rewards apart is the rewrite.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future

import numpy as np

from promptrl_jax.envs.rewriting.instruction_result import (
  InstructionResult,
  PendingInstructions,
)
from promptrl_jax.llm.backend import BackendError
from promptrl_jax.prompts import meta as meta_lib
from promptrl_jax.prompts import templates
from promptrl_jax.prompts.meta import MetaPrompt
from promptrl_jax.rewards import deadline, guards
from promptrl_jax.strategies import prewrite
from promptrl_jax.strategies.prewrite import RewardFn
from promptrl_jax.tasks.instructions import Instruction, InstructionTask

Pair = tuple[InstructionTask, Instruction]
_LONG_ANSWER = 8  # characters


@dataclasses.dataclass(frozen=True)
class InstructionRewritingConfig:
  """Settings of the environment.

  Attributes:
    examples: of a task in one batch, 0 for all.
    timeout_s: seconds after which the rows of a batch without rewards are asked
      for one by one. Rows that hang take four times as long together at most.
  """

  examples: int = 4
  timeout_s: float = 600.0

  def __post_init__(self):
    if self.examples < 0:
      raise ValueError(
        f'examples={self.examples}: expected 0 for all of a task, or more'
      )
    if not self.timeout_s > 0:
      raise ValueError(f'timeout_s={self.timeout_s}: expected more than 0')


class InstructionRewriting:
  """Rewrites of instructions in, rewards out; a `RewriteEnv`.

  Attributes:
    config: the settings.
  """

  def __init__(
    self,
    reward_fn: RewardFn,
    meta: MetaPrompt,
    config: InstructionRewritingConfig = InstructionRewritingConfig(),
    allowed: Callable[[Pair], bool] = lambda pair: True,
  ):
    """Puts the parts together.

    Args:
      reward_fn: from `prewrite.make_reward_fn`. A row for which it raises, or
        gives no finite number, is dropped.
      meta: what the rewriter is asked.
      config: settings.
      allowed: whether the task model has room for a task's examples with an
        instruction.
    """
    self.config = config
    self._reward_fn = reward_fn
    self._meta = meta
    self._allowed = allowed
    # Models are asked by one thread at a time, but for those that hang.
    self._turn = threading.Lock()

  def prompts(
    self, tasks: Sequence[InstructionTask]
  ) -> list[templates.Messages]:
    """What the rewriter is asked: meta prompt and instruction, no input."""
    return [
      meta_lib.render(self._meta, task.instruction.text) for task in tasks
    ]

  def submit(
    self,
    tasks: Sequence[InstructionTask],
    rewrites: Sequence[str],
    seed: int,
    finished: Sequence[bool] | None = None,
  ) -> PendingInstructions:
    """Asks the task model, in a thread of its own.

    Args:
      tasks: the task of each row, with the examples to draw from.
      rewrites: what the rewriter wrote for it.
      seed: of the batch; which examples of a task are met depends on it and on
        the task.
      finished: False for a rewrite that the limit cut off.

    Raises:
      ValueError: the lengths differ, or there are no rows.
    """
    finished = [True] * len(tasks) if finished is None else finished
    if not len(tasks) == len(rewrites) == len(finished) > 0:
      raise ValueError(
        f'{len(tasks)} tasks, {len(rewrites)} rewrites and {len(finished)} '
        'marks of the end: expected one of each per row, and at least one row'
      )
    task_ids = tuple(task.task_id for task in tasks)
    drawn = {
      task_id: prewrite.subsample(task, self.config.examples, seed)
      for task_id, task in dict(zip(task_ids, tasks, strict=True)).items()
    }
    read = [
      self._read(task, drawn[task.task_id], text, whole)
      for task, text, whole in zip(tasks, rewrites, finished, strict=True)
    ]
    pairs = {
      i: (drawn[task_ids[i]], instruction)
      for i, (flag, instruction) in enumerate(read)
      if not flag
    }
    begun = InstructionResult(
      rewards=np.full(len(tasks), np.nan, np.float32),
      task_ids=task_ids,
      flags=tuple(flag for flag, _ in read),
      dropped=('',) * len(tasks),
      instructions=tuple(instruction.text for _, instruction in read),
      calls=sum(len(task.examples) for task, _ in pairs.values()),
    )
    work = functools.partial(self._rewards, list(pairs.values()))
    return PendingInstructions(begun, list(pairs), deadline.begin(work))

  def _read(
    self,
    task: InstructionTask,
    drawn: InstructionTask,
    rewrite: str,
    finished: bool,
  ) -> tuple[str, Instruction]:
    """Why the rewrite is flagged, or '', and the instruction that it makes.

    Args:
      task: with all its examples.
      drawn: with those that the rewrite would meet.
      rewrite, finished: what was written.
    """
    initial = task.instruction
    text = meta_lib.read(rewrite)
    if not text:
      return 'empty', initial
    found = Instruction(text)
    if not finished:
      return 'overlong', found
    if found != initial and guards.is_repetitive(found.text):
      return 'repetition', found
    if _tells_answer(task, found):
      return 'answer', found
    if not self._allowed((drawn, found)):
      return 'no_room', found
    return '', found

  def _rewards(self, pairs: Sequence[Pair]) -> list[float | Exception]:
    """The reward of each pair, or why there is none."""
    distinct = list(dict.fromkeys(pairs))
    if not distinct:
      return []
    with self._turn:
      rows = self._ask(distinct)
    found = dict(zip(distinct, rows, strict=True))
    return [found[pair] for pair in pairs]

  def _ask(self, pairs: Sequence[Pair]) -> list[float | Exception]:
    """Of distinct pairs, together or, if that fails, one by one."""
    limit = self.config.timeout_s
    batch = deadline.begin(lambda: self._reward_fn(pairs))
    failed = _means(batch, limit)
    if isinstance(failed, list):
      return failed
    if len(pairs) == 1:
      return [failed]
    # Of some row; the others are not to suffer.
    logging.getLogger(__name__).debug('asked one by one', exc_info=failed)
    found, left = [], 2 * limit
    for pair in pairs:
      if isinstance(failed, deadline.HungError) and batch.done():
        whole = _means(batch, 0.0)  # It was not for ever.
        if isinstance(whole, list):
          return whole
      started = time.monotonic()
      row = deadline.begin(lambda pair=pair: self._reward_fn([pair]))
      alone = _means(row, max(left / 2, 2 * limit / len(pairs)))
      found += alone if isinstance(alone, list) else [alone]
      left -= time.monotonic() - started
    return found


def _means(asked: Future, limit: float) -> list[float | Exception] | Exception:
  """Means of rewards, or why there are none.

  Raises:
    BackendError: the task model cannot be reached.
  """
  try:
    return [_mean(row) for row in deadline.result(asked, limit)]
  except BackendError:
    raise
  except Exception as error:
    return error


def _tells_answer(task: InstructionTask, found: Instruction) -> bool:
  """Whether a rewrite holds the answer of an example that was not told before.

  Labels may be named, and short answers occur by chance.
  """
  text, before = found.text.lower(), task.instruction.text.lower()
  return any(
    answer in text and answer not in before
    for example in task.examples
    for output in example.outputs
    if output not in task.labels
    and len(answer := output.strip().lower()) >= _LONG_ANSWER
  )


def _mean(row: np.ndarray) -> float | Exception:
  value = float(np.mean(row))
  if math.isfinite(value):
    return value
  return ValueError(f'the reward is {value}, expected a finite number')
