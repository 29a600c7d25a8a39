"""How much a client may ask for, and how often."""

from __future__ import annotations

import dataclasses
import math
import time
from collections import deque
from collections.abc import Callable

_CLIENTS = 1000  # clients that are remembered at once


@dataclasses.dataclass(frozen=True)
class Limits:
  """Limits of the page's server.

  Attributes:
    body_bytes: size of the body of a request.
    body_s: seconds in which a body has to come in.
    writes_per_minute: requests per client that store something.
    events: events of one request.
    wait_s: seconds for which a request for questions may wait for a change.
    connections: connections at once; further ones are answered 503.
    idle_s: seconds after which an idle connection is closed.
  """

  body_bytes: int = 256 * 1024
  body_s: float = 10.0
  writes_per_minute: int = 240
  events: int = 100
  wait_s: float = 25.0
  connections: int = 200
  idle_s: int = 30

  def __post_init__(self) -> None:
    for field in dataclasses.fields(self):
      value = getattr(self, field.name)
      if not value > 0:
        raise ValueError(f'{field.name}={value!r}: expected more than 0')


class SlidingWindow:
  """Counts what clients did in the last minute."""

  def __init__(
    self,
    limit: int,
    window_s: float = 60.0,
    clock: Callable[[], float] = time.monotonic,
  ):
    self._limit = limit
    self._window_s = window_s
    self._clock = clock
    self._times: dict[str, deque[float]] = {}

  def wait_s(self, client: str) -> int:
    """Counts a request, unless it is one too many.

    Returns:
      0 if the client may go on, else the whole seconds until it may.
    """
    now = self._clock()
    # The client that came last is at the end: the first one is forgotten.
    times = self._times.pop(client, None) or deque()
    self._times[client] = times
    if len(self._times) > _CLIENTS:
      del self._times[next(iter(self._times))]
    while times and times[0] <= now - self._window_s:
      times.popleft()
    if len(times) >= self._limit:
      return max(1, math.ceil(times[0] + self._window_s - now))
    times.append(now)
    return 0
