"""Seconds of the calls of a model or a pool, for the benches.

No flags here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any


class Timed:
  """Wraps a model or a pool: adds up the seconds of its calls.

  Attributes:
    seconds: so far.
    asked: the arguments of all calls, one list.
  """

  def __init__(self, inner: Any, *methods: str):
    self.seconds, self.asked = 0.0, []
    self._inner = inner
    for name in methods:
      setattr(self, name, self._timed(getattr(inner, name)))

  def _timed(self, method: Callable[[Sequence], Any]) -> Any:
    def call(rows: Sequence) -> Any:
      self.asked += rows
      start = time.perf_counter()
      result = method(rows)
      self.seconds += time.perf_counter() - start
      return result

    return call

  def __getattr__(self, name: str) -> Any:
    return getattr(self._inner, name)
