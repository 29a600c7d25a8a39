"""Requests that wait for a change of the store."""

from __future__ import annotations

import asyncio
import time

from promptrl_jax.feedback.store import Store

POLL_S = 0.2  # between looks for what other processes stored


class Watch:
  """Looks whether anything was stored, once for all who wait.

  A look is short and takes a thread only while it lasts, so that a hundred
  requests can wait without holding a hundred threads.
  """

  def __init__(self, store: Store):
    self._store = store
    self._lock = asyncio.Lock()
    self._mark = (0, 0)
    self._looked_at = -POLL_S
    self.is_over = False  # Set when the server ends: nobody waits any more.

  async def mark(self) -> tuple[int, int]:
    """Returns what changes with each response and event; 0.2 s old at most."""
    async with self._lock:
      if time.monotonic() - self._looked_at >= POLL_S:
        self._mark = await asyncio.to_thread(self._store.mark)
        self._looked_at = time.monotonic()
      return self._mark
