"""Token buckets: how many requests and tokens a server is sent in a minute."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

_MINUTE_S = 60.0
# Share of a minute's tokens that may be sent at once.
_BURST = 0.1
_ROUNDING = 1e-9

Clock = Callable[[], float]


class TokenBucket:
  """Room for an amount, which refills at a constant rate.

  What is taken in t seconds is at most `capacity` + t * `per_second`. A single
  amount above the capacity is taken when the bucket is full, and what it lacks
  is refilled before anything else is taken.
  """

  def __init__(
    self, capacity: float, per_second: float, clock: Clock = time.monotonic
  ):
    """Makes a full bucket; `clock` gives seconds."""
    self._capacity = capacity
    self._per_second = per_second
    self._clock = clock
    self._level = capacity
    self._filled_at = clock()

  def delay(self, amount: float) -> float:
    """Returns the seconds until an amount can be taken."""
    now = self._clock()
    refill = (now - self._filled_at) * self._per_second
    self._level = min(self._capacity, self._level + refill)
    self._filled_at = now
    lacking = min(amount, self._capacity) - self._level
    # What rounding leaves is no reason to wait again.
    return lacking / self._per_second if lacking > _ROUNDING * amount else 0.0

  def take(self, amount: float) -> None:
    self._level -= amount

  def give_back(self, amount: float) -> None:
    """Returns what was taken and not used; below 0, takes more."""
    self._level = min(self._capacity, self._level + amount)


class RateLimits:
  """Lets requests pass, one after the other, as a server's limits allow.

  Requests pass at equal intervals. A tenth of a minute's tokens may pass at
  once and the rest of them refill, so that no minute sees more than its limit
  unless a single request has more than a tenth of its tokens.
  """

  def __init__(
    self,
    requests_per_minute: float = 0,
    tokens_per_minute: float = 0,
    clock: Clock = time.monotonic,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
  ):
    """Makes the buckets; a limit of 0 is none."""
    self._sleep = sleep
    self._turn = asyncio.Lock()
    self._requests = self._tokens = None
    if requests_per_minute:
      self._requests = TokenBucket(1, requests_per_minute / _MINUTE_S, clock)
    if tokens_per_minute:
      burst = _BURST * tokens_per_minute
      rate = (tokens_per_minute - burst) / _MINUTE_S
      self._tokens = TokenBucket(burst, rate, clock)

  async def enter(self, tokens: int) -> None:
    """Returns when a request of at most `tokens` may be sent, and counts it."""
    amounts = ((self._requests, 1), (self._tokens, tokens))
    limited = [(bucket, n) for bucket, n in amounts if bucket is not None]
    async with self._turn:  # Nothing passes a request that waits.
      while seconds := max((b.delay(n) for b, n in limited), default=0.0):
        await self._sleep(seconds)
      for bucket, amount in limited:
        bucket.take(amount)

  def give_back(self, tokens: int) -> None:
    """Returns tokens that a request was counted with and did not use."""
    if self._tokens is not None:
      self._tokens.give_back(tokens)
