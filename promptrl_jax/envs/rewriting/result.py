"""Pending and final rewards of a batch of rewrites."""

from __future__ import annotations

import collections
import dataclasses
import logging
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future

import numpy as np

from promptrl_jax.rewards import deadline, guards
from promptrl_jax.rewards.checking import Outcome, Reply

_LOG = logging.getLogger(__name__)

# The template cannot use the rewrite: the model would get the old statement,
# and the rewriter a reward for words that nobody read.
UNUSABLE = 'unusable'
ANSWER = 'answer'  # The rewrite tells the right answer of an example.
NO_ROOM = 'no_room'  # The model has no room for it with an example.
FLAGS = (*guards.FLAGS, UNUSABLE, ANSWER, NO_ROOM)


@dataclasses.dataclass(frozen=True, eq=False)
class RewriteResult:
  """Rewards of N rewrites.

  Attributes:
    rewards: float32 [N]; NaN if dropped. A flagged row has the lowest reward of
      its task in the batch, and at most 0: never more than one that was read.
    task_ids: the task of each row.
    flags: why a rewrite was flagged, one of `FLAGS`, or ''.
    dropped: why the system gave no reward, or ''; never a reason of the
      rewrite's own.
    outcomes: of checking the replies; None where there was no reply.
    statements: the statement that the model read, '' if flagged.
    replies: what the model replied, '' if flagged or none.
    calls: requests to the model, one for each row or example that was not
      flagged; equal requests count each.
    prompt_tokens, completion_tokens: of the model; 0 while a background request
      is pending.
    generate_seconds: time that the model took.
    check_seconds: from the last reply to the last reward.
    wait_seconds: time that `result` waited; the device was at work in the rest.
  """

  rewards: np.ndarray
  task_ids: tuple[str, ...]
  flags: tuple[str, ...]
  dropped: tuple[str, ...]
  outcomes: tuple[Outcome | None, ...]
  statements: tuple[str, ...]
  replies: tuple[Reply, ...]
  calls: int
  prompt_tokens: int = 0
  completion_tokens: int = 0
  generate_seconds: float = 0.0
  check_seconds: float = 0.0
  wait_seconds: float = 0.0
  overlapped_seconds: float = 0.0

  @property
  def valid(self) -> np.ndarray:
    """bool [N], which rows have a reward."""
    return np.isfinite(self.rewards)

  def metrics(self) -> dict[str, float]:
    """Returns rows for `MetricWriter`; means are over rows with a reward."""
    count = len(self.rewards)
    valid = self.valid
    flagged = collections.Counter(self.flags)
    solved = [o is not None and o.passed for o in self.outcomes]
    rewarded = max(1, int(valid.sum()))
    row = {
      'reward/mean': float(self.rewards[valid].sum()) / rewarded,
      'reward/solved': float(np.sum(solved, where=valid)) / rewarded,
      'reward/dropped': float((~valid).sum()),
      'reward/flagged': (count - flagged['']) / count,
      'budget/coder_calls': float(self.calls),
      'budget/coder_tokens': float(self.prompt_tokens + self.completion_tokens),
      'time/coder': self.generate_seconds,
      'time/programs': self.check_seconds,
      'time/wait_for_verdicts': self.wait_seconds,
      'time/overlapped': self.overlapped_seconds,
    }
    return row | {
      f'reward/flag_{name}': flagged[name] / count for name in FLAGS
    }


@dataclasses.dataclass(frozen=True)
class Answered:
  """The model's replies to the rows of a batch, and rewards to come.

  Attributes:
    rewarded: row -> future of its outcome and reward.
    replies: row -> reply.
    prompt_tokens, completion_tokens, seconds: of the model.
    span: time until the last reward.
  """

  rewarded: Mapping[int, Future]
  replies: Mapping[int, Reply]
  prompt_tokens: int
  completion_tokens: int
  seconds: float
  span: deadline.Span


class PendingRewards:
  """Rewards that are being computed, from `RewritingEnv.submit`."""

  def __init__(
    self,
    unfinished: RewriteResult,
    answered: Future[Answered],
    timeout_s: float,
    background: bool,
  ):
    """Waits for nothing yet.

    Args:
      unfinished: the result without rewards.
      answered: done unless the model is asked in the background.
      timeout_s, background: see `RewritingConfig`.
    """
    self._unfinished = unfinished
    self._answered = answered
    self._timeout_s = timeout_s
    self._background = background
    self._result: RewriteResult | None = None

  def done(self) -> bool:
    """Whether `result` returns at once."""
    if not self._answered.done():
      return False
    if self._answered.exception() is not None:
      return True
    return all(f.done() for f in self._answered.result().rewarded.values())

  def result(self) -> RewriteResult:
    """Waits for the rewards; a second call returns the same object.

    Raises:
      RuntimeError: rows were to be rewarded, and not one was; the message says
        why the first was not. A run would learn nothing and go on for ever.
      BackendError: the model cannot be reached.
    """
    if self._result is None:
      started = time.perf_counter()
      answered = self._answered.result()
      outcomes = deadline.gather(
        list(answered.rewarded.values()), self._timeout_s
      )
      seconds = time.perf_counter() - started
      _raise_if_none(outcomes)
      self._result = self._finish(answered, outcomes, seconds)
    return self._result

  def _finish(
    self,
    answered: Answered,
    outcomes: Sequence[deadline.Settled],
    seconds: float,
  ) -> RewriteResult:
    unfinished = self._unfinished
    rewards, dropped = unfinished.rewards.copy(), list(unfinished.dropped)
    checked: list[Outcome | None] = list(unfinished.outcomes)
    for i, outcome in zip(answered.rewarded, outcomes, strict=True):
      dropped[i] = outcome.error
      checked[i], rewards[i] = outcome.value or (None, np.nan)
    floors: dict[str, float] = collections.defaultdict(float)
    for task_id, value in zip(unfinished.task_ids, rewards, strict=True):
      if np.isfinite(value):
        floors[task_id] = min(floors[task_id], float(value))
    for i, flag in enumerate(unfinished.flags):
      if flag:
        rewards[i] = floors[unfinished.task_ids[i]]
    busy = answered.span.seconds()
    if self._background:
      busy += answered.seconds
    return dataclasses.replace(
      unfinished,
      rewards=rewards,
      dropped=tuple(dropped),
      outcomes=tuple(checked),
      replies=tuple(
        answered.replies.get(i, '') for i in range(len(unfinished.flags))
      ),
      prompt_tokens=answered.prompt_tokens,
      completion_tokens=answered.completion_tokens,
      generate_seconds=answered.seconds,
      check_seconds=answered.span.seconds(),
      wait_seconds=seconds,
      overlapped_seconds=max(0.0, busy - seconds),
    )


def _raise_if_none(outcomes: Sequence[deadline.Settled]) -> None:
  """Logs why rows were dropped, and raises if all were."""
  reasons = [outcome.error for outcome in outcomes]
  for reason in dict.fromkeys(filter(None, reasons)):
    _LOG.warning('%d samples dropped: %s', reasons.count(reason), reason)
  if reasons and all(reasons):
    raise RuntimeError(
      f'none of {len(reasons)} rewrites got a reward; the first: {reasons[0]}'
    )
