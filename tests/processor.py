"""How slow this processor is now, for tests that bound processor time."""

from __future__ import annotations

import time

_ADDITIONS = 200_000
_SECONDS = 0.0114  # They took where bounds were measured, at a quiet hour.


def slowness() -> float:
  """Times as long as additions in Python take as where bounds were measured.

  The fastest of a few tries, and at least 1: shared machines are up to three
  times slower at some hours, and no bound is tighter where they are faster.
  """
  tries = []
  for _ in range(5):
    started, total = time.process_time(), 0
    for i in range(_ADDITIONS):
      total += i
    tries.append(time.process_time() - started)
  return max(1.0, min(tries) / _SECONDS)
