"""A limit on what a strategy computes between two requests.

A strategy that never asks again would hang all that are played with it.
"""

from __future__ import annotations

import signal
import threading
from types import TracebackType

# A strategy thinks for milliseconds; the encoder of worked examples is compiled
# when it reads the first statement.
LIMIT_S = 120.0
_AGAIN_S = 1.0  # for one that has caught the error and goes on


class StepTimeout(RuntimeError):
  """A strategy did not come to its next request in time."""


class StepLimit:
  """Raises StepTimeout inside the block when its time is over.

  Python delivers signals to the main thread alone: elsewhere, and where an
  alarm is set already, nothing is limited. A call that does not return to the
  interpreter is not ended.
  """

  _is_limited = False

  def __enter__(self) -> None:
    current = threading.current_thread()
    # An alarm that the caller has set is the caller's, and stays.
    is_set = any(signal.getitimer(signal.ITIMER_REAL))
    if current is threading.main_thread() and not is_set:
      self._is_limited = True
      self._before = signal.signal(signal.SIGALRM, self._end)
      signal.setitimer(signal.ITIMER_REAL, LIMIT_S, _AGAIN_S)

  def __exit__(
    self,
    kind: type[BaseException] | None,
    error: BaseException | None,
    trace: TracebackType | None,
  ) -> None:
    if self._is_limited:
      signal.setitimer(signal.ITIMER_REAL, 0)
      signal.signal(signal.SIGALRM, self._before or signal.SIG_DFL)

  def _end(self, number: int, frame: object) -> None:
    raise StepTimeout(f'no request within {LIMIT_S:g} s: the strategy loops')
