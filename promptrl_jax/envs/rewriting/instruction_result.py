"""What rewritten instructions are worth: rewards to come, and there."""

from __future__ import annotations

import collections
import dataclasses
import logging
import time
from collections.abc import Sequence
from concurrent.futures import Future

import numpy as np

from promptrl_jax.rewards import deadline

_LOG = logging.getLogger(__name__)

# Why a rewrite is worth nothing: no words, cut off by the limit, going round in
# circles, telling the answer of an example, or too long for the task model with
# an example.
FLAGS = ('empty', 'overlong', 'repetition', 'answer', 'no_room')


@dataclasses.dataclass(frozen=True, eq=False)
class InstructionResult:
  """What N rewrites of instructions were worth.

  Attributes:
    rewards: float32 [N]; NaN if dropped. A flagged row has the lowest reward of
      its task in the batch, and at most 0: never more than one that was read.
    task_ids: the task of each.
    flags: why a rewrite was flagged, one of `FLAGS`, or ''.
    dropped: why the system gave no reward, or ''.
    instructions: what was read from each rewrite.
    calls: answers of the task model, one for each example of each row.
    answer_seconds: from the first question to the last reward.
    wait_seconds: of these, that `result` waited; the device was at work in the
      others.
  """

  rewards: np.ndarray
  task_ids: tuple[str, ...]
  flags: tuple[str, ...]
  dropped: tuple[str, ...]
  instructions: tuple[str, ...]
  calls: int
  answer_seconds: float = 0.0
  wait_seconds: float = 0.0

  @property
  def valid(self) -> np.ndarray:
    """bool [N], which rows have a reward."""
    return np.isfinite(self.rewards)

  def metrics(self) -> dict[str, float]:
    """For `MetricWriter`; means are over rows that have a reward."""
    count, valid = len(self.rewards), self.valid
    flagged = collections.Counter(self.flags)
    row = {
      'reward/mean': float(self.rewards[valid].sum()) / max(1, valid.sum()),
      'reward/dropped': float((~valid).sum()),
      'reward/flagged': (count - flagged['']) / count,
      'budget/task_model_calls': float(self.calls),
      'time/answers': self.answer_seconds,
      'time/wait_for_answers': self.wait_seconds,
      'time/overlapped': max(0.0, self.answer_seconds - self.wait_seconds),
    }
    return row | {
      f'reward/flag_{name}': flagged[name] / count for name in FLAGS
    }


class PendingInstructions:
  """Rewards to come, from `InstructionRewriting.submit`."""

  def __init__(
    self,
    begun: InstructionResult,
    rows: Sequence[int],
    future: Future,
  ):
    """Waits for nothing yet.

    Args:
      begun: without rewards.
      rows: that the task model was asked about.
      future: of a reward or an exception for each of them; it ends by itself.
    """
    self._begun = begun
    self._rows = rows
    self._future = future
    self._span = deadline.Span([future])
    self._result: InstructionResult | None = None

  def done(self) -> bool:
    """Whether `result` returns at once."""
    return self._future.done()

  def result(self) -> InstructionResult:
    """Waits for what is not done; again, it gives the same object.

    Raises:
      RuntimeError: rows were to be rewarded, and not one was; says why the
        first was not. A run would learn nothing and go on for ever.
      BackendError: the task model cannot be reached.
    """
    if self._result is None:
      started = time.perf_counter()
      rewards = self._future.result()
      self._result = self._finish(rewards, time.perf_counter() - started)
    return self._result

  def _finish(
    self, found: Sequence[float | Exception], seconds: float
  ) -> InstructionResult:
    rewards = self._begun.rewards.copy()
    dropped = list(self._begun.dropped)
    for i, value in zip(self._rows, found, strict=True):
      if isinstance(value, Exception):
        dropped[i] = f'{type(value).__name__}: {value}'
      else:
        rewards[i] = value
    reasons = list(filter(None, dropped))
    for reason in dict.fromkeys(reasons):
      _LOG.warning('%d samples dropped: %s', reasons.count(reason), reason)
    if reasons and len(reasons) == len(self._rows):
      raise RuntimeError(
        f'none of {len(reasons)} rewrites got a reward; the first: {reasons[0]}'
      )
    floors: dict[str, float] = collections.defaultdict(float)
    for task_id, value in zip(self._begun.task_ids, rewards, strict=True):
      if np.isfinite(value):
        floors[task_id] = min(floors[task_id], float(value))
    for i, flag in enumerate(self._begun.flags):
      if flag:
        rewards[i] = floors[self._begun.task_ids[i]]
    return dataclasses.replace(
      self._begun,
      rewards=rewards,
      dropped=tuple(dropped),
      answer_seconds=self._span.seconds(),
      wait_seconds=seconds,
    )
