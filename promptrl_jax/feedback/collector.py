"""Shows answers and waits for feedback, for a training loop."""

from __future__ import annotations

import asyncio
import dataclasses
import time

from promptrl_jax.feedback.aggregate import (
  Weights,
  aggregate,
  standing,
  subjects,
)
from promptrl_jax.feedback.events import Response, Undo, settles
from promptrl_jax.feedback.store import Store

_POLL_S = 0.2  # between looks for what other processes stored


@dataclasses.dataclass(frozen=True)
class Arrival:
  """A response about which something came in.

  Attributes:
    response: as it was shown, with the prompt and version that it counts for.
    score: what everything that is known by now says; None: nothing any more.
  """

  response: Response
  score: float | None


class FeedbackCollector:
  """Puts answers before people, and hands out what they say."""

  def __init__(self, store: Store, weights: Weights = Weights()):
    """Uses a store, which stays the caller's to close."""
    self.store = store
    self.weights = weights

  def show(self, *responses: Response) -> None:
    """Stores responses for the page that shows what nobody rated yet.

    Several responses are shown side by side, as one question.
    """
    if not responses:
      raise ValueError('nothing to show: expected at least one response')
    question = responses[0].question_id
    self.store.add_responses(
      [dataclasses.replace(r, question_id=question) for r in responses]
    )

  def score(self, response_id: str) -> float | None:
    """Returns what is known about a response now; see `aggregate.aggregate`.

    Raises:
      UnknownResponse: it was not shown.
    """
    return self._look(response_id)[0]

  def wait(self, response_id: str, timeout_s: float) -> float | None:
    """Blocks until somebody rates, corrects or skips a response, or asks again.

    Returns:
      Its score in [0, 1]; None if nothing that counts was known after
      `timeout_s` seconds, or if the response was skipped. What comes later is
      stored all the same, and `arrived` returns it.

    Raises:
      UnknownResponse: it was not shown.
    """
    deadline = time.monotonic() + timeout_s
    while True:
      score, is_settled = self._look(response_id)
      left = deadline - time.monotonic()
      if is_settled or left <= 0:
        return score
      self.store.wait(min(left, _POLL_S))

  async def wait_async(
    self, response_id: str, timeout_s: float
  ) -> float | None:
    """Waits like `wait` without blocking the event loop."""
    deadline = time.monotonic() + timeout_s
    while True:
      score, is_settled = await asyncio.to_thread(self._look, response_id)
      left = deadline - time.monotonic()
      if is_settled or left <= 0:
        return score
      await asyncio.sleep(min(left, _POLL_S))

  def arrived(
    self, since: int = 0, until: int | None = None
  ) -> tuple[list[Arrival], int]:
    """Returns what came in after an event, at once, and where to go on.

    It may be about any response, however old: its score is that of all that is
    known about it, and counts for the prompt and version that gave it.

    Args:
      since: what the last call returned; 0 for everything.
      until: number of the last event to look at; None: there is no limit.

    Returns:
      Responses in the order of their first new event, each once, and the number
      to pass on to the next call.
    """
    entries = [
      entry
      for entry in self.store.since(since)
      if until is None or entry.seq <= until
    ]
    touched: dict[str, None] = {}
    for entry in entries:
      event = entry.event
      if isinstance(event, Undo):
        event = self.store.event(event.event_id)
      touched |= dict.fromkeys(subjects(event))
    arrivals = [
      Arrival(self.store.response(response_id), self.score(response_id))
      for response_id in touched
    ]
    return arrivals, entries[-1].seq if entries else since

  def _look(self, response_id: str) -> tuple[float | None, bool]:
    response = self.store.response(response_id)
    events = self.store.events(response_id)
    is_settled = any(map(settles, standing(events)))
    return aggregate(response, events, self.weights), is_settled
