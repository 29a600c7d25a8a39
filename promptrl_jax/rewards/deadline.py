"""Rewards from functions that may raise, or never return.

Both are told apart from a reward of zero: the sample is dropped and the reason
is kept.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import Any


@dataclasses.dataclass(frozen=True)
class Settled:
  """The value of a future that is done, or why it has none."""

  value: Any = None
  error: str = ''


class Span:
  """How long some futures take from now on."""

  def __init__(self, futures: Iterable[Future]):
    self._start = self._end = time.perf_counter()
    for future in futures:
      future.add_done_callback(self._note)

  def _note(self, _: Future) -> None:
    self._end = time.perf_counter()

  def seconds(self) -> float:
    """Until the last one that is done by now."""
    return self._end - self._start


class HungError(RuntimeError):
  """A function has not come back in time; its thread is left behind."""


def begin(fn: Callable[[], Any]) -> Future:
  """A future of `fn()`, which runs in a daemon thread of its own.

  One that hangs does not hold up the end of the process.
  """
  future: Future = Future()
  _start(future, fn)
  return future


def settled(value: Any) -> Future:
  """Returns a future that is done."""
  future: Future = Future()
  future.set_result(value)
  return future


def failed(error: BaseException) -> Future:
  """Returns a future that is done and raises."""
  future: Future = Future()
  future.set_exception(error)
  return future


def each(
  fn: Callable[[Sequence[Any]], Sequence[Any]],
  items: Sequence[Any],
  timeout_s: float,
  fatal: type[BaseException],
) -> list[Any]:
  """Applies a batched function that may raise or hang because of one item.

  All items go into one call. If it raises, or takes longer than `timeout_s`,
  the items are tried one by one, so that the others do not suffer from the one.
  Together that takes at most four times `timeout_s`.

  Args:
    fn: items -> a result for each, in order.
    items: arguments; no call is made for none.
    timeout_s: seconds.
    fatal: raised again at once; another exception stands for a missing result.
  """
  if not items:
    return []
  batch = begin(lambda: fn(items))
  results = _results(batch, timeout_s, fatal)
  if isinstance(results, list):
    return results
  if len(items) == 1:
    return [results]
  logging.getLogger(__name__).debug('asked one by one', exc_info=results)
  separate, left = [], 2 * timeout_s
  for item in items:
    if isinstance(results, HungError) and batch.done():
      late = _results(batch, 0.0, fatal)  # It was only late.
      if isinstance(late, list):
        return late
    started = time.monotonic()
    one = begin(lambda item=item: fn([item]))
    limit = max(left / 2, 2 * timeout_s / len(items))
    alone = _results(one, limit, fatal)
    separate += alone if isinstance(alone, list) else [alone]
    left -= time.monotonic() - started
  return separate


def _results(
  future: Future, limit: float, fatal: type[BaseException]
) -> list[Any] | Exception:
  if not concurrent.futures.wait([future], limit).done:
    return HungError(f'no result for {limit:g} s')
  try:
    return list(future.result())
  except fatal:
    raise
  except Exception as error:
    return error


def then(before: Future, fn: Callable[[Any], Any]) -> Future:
  """A future of `fn(before.result())`.

  `fn` runs as soon as `before` is done, and one that hangs does not hold up
  what settled `before`.
  """
  after: Future = Future()
  before.add_done_callback(lambda _: _start(after, lambda: fn(before.result())))
  return after


def _start(future: Future, fn: Callable[[], Any]) -> None:
  threading.Thread(target=settle, args=(future, fn), daemon=True).start()


def settle(future: Future, fn: Callable[[], Any]) -> None:
  """Gives a future the result of `fn()`, or what that raises."""
  try:
    future.set_result(fn())
  except BaseException as error:  # Raised again where it is read.
    future.set_exception(error)


def gather(futures: Sequence[Future], timeout_s: float) -> list[Settled]:
  """Waits for all futures, but not for those that hang.

  Once none of them got done for `timeout_s` seconds, the others are given up. A
  limit on the whole would drop samples of a busy machine.
  """
  waiting = set(futures)
  while waiting:
    done, waiting = concurrent.futures.wait(
      waiting, timeout_s, concurrent.futures.FIRST_COMPLETED
    )
    if not done:
      break
  late = f'no result, and none of the others, for {timeout_s:g} s'
  return [Settled(error=late) if f in waiting else _read(f) for f in futures]


def _read(future: Future) -> Settled:
  error = future.exception()
  if error is None:
    return Settled(future.result())
  return Settled(error=f'{type(error).__name__}: {error}')
