"""A limit on what a strategy computes between two requests.

A strategy that never asks again would hang all that are played with it.
"""

from __future__ import annotations

import signal
import threading
from types import TracebackType
from typing import Any

# A strategy thinks for milliseconds; the encoder of worked examples is compiled
# when it reads the first statement.
LIMIT_S = 120.0
# Of a strategy that has reached its limit so often that it loops for good.
_LEAST_S = 0.1
_AGAIN_S = 1.0  # for one that has caught the error and goes on


class StepTimeout(RuntimeError):
  """A strategy did not come to its next request in time.

  It may catch this and hand in what it has.
  """


class StepAborted(BaseException):
  """The same for one that has caught that error and goes on.

  `except Exception` does not catch it.
  """


class StepLimits:
  """The limits of the strategies that are played together.

  Each time that one is reached, that of its strategy is half as long from then
  on, down to a tenth of a second: a strategy that loops on thousands of
  problems costs minutes, and not two of them for each problem.
  """

  def __init__(self):
    self._seconds: dict[Any, float] = {}

  def of(self, strategy: Any) -> StepLimit:
    """Returns the limit of one step of a strategy."""
    return StepLimit(self._seconds, strategy)


class StepLimit:
  """Raises StepTimeout inside the block when its time is over.

  Python delivers signals to the main thread alone: elsewhere, and where an
  alarm is set already, nothing is limited. A call that does not return to the
  interpreter is not ended.

  Attributes:
    was_reached: whether the time was over.
  """

  was_reached = False
  _is_limited = False
  _is_over = False

  def __init__(self, seconds: dict[Any, float], strategy: Any):
    """Keeps the table of limits by strategy; one that is absent has LIMIT_S."""
    self._table, self._strategy = seconds, strategy
    self._limit_s = seconds.get(strategy, LIMIT_S)

  def __enter__(self) -> None:
    current = threading.current_thread()
    # An alarm that the caller has set is the caller's, and stays.
    is_set = any(signal.getitimer(signal.ITIMER_REAL))
    if current is threading.main_thread() and not is_set:
      self._is_limited = True
      self._before = signal.signal(signal.SIGALRM, self._end)
      signal.setitimer(signal.ITIMER_REAL, self._limit_s, _AGAIN_S)

  def __exit__(
    self,
    kind: type[BaseException] | None,
    error: BaseException | None,
    trace: TracebackType | None,
  ) -> None:
    try:
      self._is_over = True  # An alarm from here on comes too late.
    finally:
      if self._is_limited:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self._before or signal.SIG_DFL)
    if self.was_reached:
      self._table[self._strategy] = max(_LEAST_S, self._limit_s / 2)

  def _end(self, number: int, frame: object) -> None:
    if self._is_over:
      return
    kind = StepAborted if self.was_reached else StepTimeout
    self.was_reached = True
    raise kind(f'no request within {self._limit_s:g} s: the strategy loops')
