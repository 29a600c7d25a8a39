"""Seconds of the calls of a model or a pool, for the benches.

No flags here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any


class Timed:
  """Wraps a model or a pool: adds up the seconds of its calls.

  Methods that the model or pool lacks are left out. Where one returns an
  iterator, the seconds until each item count.

  Attributes:
    seconds: so far.
    asked: the arguments of all calls, one list.
  """

  def __init__(self, inner: Any, *methods: str):
    self.seconds, self.asked = 0.0, []
    self._inner = inner
    for name in methods:
      if (method := getattr(inner, name, None)) is not None:
        setattr(self, name, self._timed(method))

  def _timed(self, method: Callable[[Sequence], Any]) -> Any:
    def call(rows: Sequence) -> Any:
      self.asked += rows
      start = time.perf_counter()
      result = method(rows)
      self.seconds += time.perf_counter() - start
      return self._items(result) if isinstance(result, Iterator) else result

    return call

  def _items(self, items: Iterator[Any]) -> Iterator[Any]:
    while True:
      start = time.perf_counter()
      try:
        item = next(items)
      except StopIteration:
        return
      finally:
        self.seconds += time.perf_counter() - start
      yield item

  def __getattr__(self, name: str) -> Any:
    return getattr(self._inner, name)
