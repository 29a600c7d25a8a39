"""What rewrites are worth: rewards to come, and rewards that are there."""

from __future__ import annotations

import collections
import dataclasses
import logging
import time
from concurrent.futures import Future

import numpy as np

from promptrl_jax.execution import ProgramResult
from promptrl_jax.rewards import deadline, guards

_LOG = logging.getLogger(__name__)

# What a rewrite is flagged as if the template cannot use it: the coder would
# get the old statement, and the rewriter a reward for words that nobody read.
UNUSABLE = 'unusable'
FLAGS = (*guards.FLAGS, UNUSABLE)


@dataclasses.dataclass(frozen=True, eq=False)
class RewriteResult:
  """What N rewrites were worth.

  Attributes:
    rewards: float32 [N]; 0 if flagged, NaN if dropped.
    flags: why a rewrite was flagged, one of `FLAGS`, or ''.
    dropped: why the system gave no reward, or ''; never a reason of the
      rewrite's own.
    verdicts: of the programs; None where there was none.
    statements: what the coder read, '' if flagged.
    codes: the programs, '' if flagged or none.
    calls: calls of the coder, one for each row that was not flagged.
    prompt_tokens, completion_tokens: of the coder.
    generate_seconds: that the coder took, in `submit`.
    program_seconds: from the start of the programs to the last reward.
    wait_seconds: of these, that `result` waited; the device was at work in the
      others.
  """

  rewards: np.ndarray
  flags: tuple[str, ...]
  dropped: tuple[str, ...]
  verdicts: tuple[ProgramResult | None, ...]
  statements: tuple[str, ...]
  codes: tuple[str, ...]
  calls: int
  prompt_tokens: int
  completion_tokens: int
  generate_seconds: float
  program_seconds: float = 0.0
  wait_seconds: float = 0.0

  @property
  def valid(self) -> np.ndarray:
    """bool [N], which rows have a reward."""
    return np.isfinite(self.rewards)

  def metrics(self) -> dict[str, float]:
    """For `MetricWriter`; means are over rows that have a reward."""
    count = len(self.rewards)
    valid = self.valid
    flagged = collections.Counter(self.flags)
    solved = [v is not None and v.passed for v in self.verdicts]
    rewarded = max(1, int(valid.sum()))
    row = {
      'reward/mean': float(self.rewards[valid].sum()) / rewarded,
      'reward/solved': float(np.sum(solved, where=valid)) / rewarded,
      'reward/dropped': float((~valid).sum()),
      'reward/flagged': (count - flagged['']) / count,
      'budget/coder_calls': float(self.calls),
      'budget/coder_tokens': float(self.prompt_tokens + self.completion_tokens),
      'time/coder': self.generate_seconds,
      'time/programs': self.program_seconds,
      'time/wait_for_verdicts': self.wait_seconds,
      'time/overlapped': max(0.0, self.program_seconds - self.wait_seconds),
    }
    return row | {
      f'reward/flag_{name}': flagged[name] / count for name in FLAGS
    }


class PendingRewards:
  """Rewards to come, from `RewritingEnv.submit`."""

  def __init__(
    self,
    unfinished: RewriteResult,
    rewarded: dict[int, Future],
    timeout_s: float,
  ):
    self._result = unfinished
    self._rewarded = rewarded
    self._timeout_s = timeout_s
    self._span = deadline.Span(rewarded.values())

  def done(self) -> bool:
    """Whether `result` returns at once."""
    return all(future.done() for future in self._rewarded.values())

  def result(self) -> RewriteResult:
    """Waits for what is not done; again, it gives the same object.

    Raises:
      RuntimeError: there were programs, and not one got a reward; says why the
        first did not. A run would learn nothing and go on for ever.
    """
    if not self._rewarded:
      return self._result
    started = time.perf_counter()
    outcomes = deadline.gather(list(self._rewarded.values()), self._timeout_s)
    seconds = time.perf_counter() - started
    reasons = [outcome.error for outcome in outcomes]
    for reason in dict.fromkeys(filter(None, reasons)):
      _LOG.warning('%d samples dropped: %s', reasons.count(reason), reason)
    if all(reasons):
      raise RuntimeError(
        f'none of {len(reasons)} programs got a reward; the first: {reasons[0]}'
      )
    rewards = self._result.rewards.copy()
    dropped, verdicts = list(self._result.dropped), list(self._result.verdicts)
    for i, outcome in zip(self._rewarded, outcomes, strict=True):
      dropped[i] = outcome.error
      verdicts[i], rewards[i] = outcome.value or (None, np.nan)
    self._result = dataclasses.replace(
      self._result,
      rewards=rewards,
      dropped=tuple(dropped),
      verdicts=tuple(verdicts),
      program_seconds=self._span.seconds(),
      wait_seconds=seconds,
    )
    self._rewarded = {}
    return self._result
