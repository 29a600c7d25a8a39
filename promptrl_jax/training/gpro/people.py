"""Joins the loop to the store of what people say.

  Loop.show ──> Response(s) ──> store ──> a page, a person
                                  │
  Loop.hear, Loop.forget <── collect <── events, in any order, at any time

A response knows the number of its query, and everything that its row of the
replay is made of. So a run that was killed takes what was shown since its last
checkpoint from the store, without asking the model, and then hears all that
was said: no rating is lost.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from promptrl_jax.feedback import aggregate, scales
from promptrl_jax.feedback.collector import FeedbackCollector
from promptrl_jax.feedback.events import (
  Candidate,
  Event,
  Explicit,
  Preference,
  Response,
  Skip,
  settles,
)
from promptrl_jax.feedback.store import Store
from promptrl_jax.training.gpro.loop import Loop
from promptrl_jax.training.gpro.reward import (
  Answer,
  RewardFn,
  learned,
  pair_reward,
)
from promptrl_jax.training.gpro.showing import Showing

ASK = ('one', 'pair')
_THUMBS = ('thumbs', 'sign')
# What a person said: a number in [0, 1], and its kind in the replay.
Said = tuple[float, str]
_Heard = tuple[float, str, str]  # the same, and a comment


class People:
  """Shows what a loop chooses, and tells it what people say.

  Attributes:
    since: number of the last event of the store that was heard.
    said: what stands in the store, by the number of the query, oldest first.
  """

  def __init__(
    self,
    loop: Loop,
    store: Store,
    session: str,
    *,
    ask: str = 'one',
    reward_fn: RewardFn = lambda human, answer: human,
    model: str = '',
    clock: Callable[[], float] = time.time,
  ):
    """Joins a loop to a session of a store, which stays the caller's to close.

    Args:
      session: in which responses are shown; other sessions are not heard.
      ask: `one` answer is rated, or a `pair` is compared.
      reward_fn: what the loop learns from; see `reward.make_reward`.
      model: name of what answers.
      clock: Unix time in seconds.
    """
    if ask not in ASK:
      raise ValueError(f'ask={ask!r}: expected one of {", ".join(ASK)}')
    self.since = 0
    self.said: dict[int, _Heard] = {}
    self.loop, self.store, self.session = loop, store, session
    self._ask, self._reward_fn, self._model = ask, reward_fn, model
    self._clock, self._collector = clock, FeedbackCollector(store)

  @property
  def ratings(self) -> list[float]:
    """What people said of each query that they rated, in [0, 1], in order."""
    return [value for value, _, _ in self.said.values()]

  @property
  def is_open(self) -> bool:
    """Whether something was shown that nobody rated or skipped yet."""
    return bool(self.store.pending(self.session, 1))

  def show(self, query: str) -> tuple[Response, ...]:
    """Answers a query, and stores what is to be shown as one question.

    Raises:
      BackendError, StoreError: it could not be answered, or not stored.
    """
    showing = self.loop.show(query, pair=self._ask == 'pair')
    responses = self._responses(showing)
    self._collector.show(*responses)
    return responses

  def collect(self, until: int | None = None) -> int:
    """Hears what has come in, however late; returns how many queries changed.

    Ratings are heard as ratings, thumbs as thumbs, and a choice between two
    answers as a pair; corrections, and what was done without a word, by the
    score of `feedback.aggregate`. What was taken back is forgotten, and so is
    what was skipped.

    Args:
      until: number of the last event to hear; None: all of them.
    """
    changed = 0
    while True:
      arrivals, since = self._collector.arrived(self.since, until)
      questions = {
        arrival.response.question_id: arrival.response
        for arrival in arrivals
        if arrival.response.session == self.session
      }
      changed += sum(map(self._hear, questions.values()))
      if since == self.since:
        return changed
      self.since = since

  def resume(self) -> int:
    """Takes up what was shown and said since the snapshot that was restored.

    Returns:
      How many queries were shown since.
    """
    shown: dict[int, list[Response]] = {}
    for response in self.store.responses(self.session):
      shown.setdefault(response.metadata['serial'], []).append(response)
    missing = sorted(n for n in shown if n >= self.loop.queries)
    for serial in missing:
      # In the order of then, so that all is as it was.
      self.collect(until=shown[serial][0].metadata['since'])
      self.loop.learn()
      self.loop.remember(self._showing(shown[serial]))
    self.collect()
    return len(missing)

  def snapshot(self) -> dict[str, Any]:
    """Returns where it stands as JSON data, without its loop."""
    said = [[serial, *said] for serial, said in self.said.items()]
    return {'since': self.since, 'said': said}

  def restore(self, plain: Mapping[str, Any]) -> None:
    """Goes on from what `snapshot` returned."""
    self.since = plain['since']
    self.said = {serial: tuple(heard) for serial, *heard in plain['said']}

  def _hear(self, response: Response) -> bool:
    serial = response.metadata['serial']
    responses = self._question(response)
    by_id = {
      event.id: event
      for one in responses
      for event in self.store.events(one.id)
    }
    events = list(by_id.values())
    said = hear(responses, events)
    heard = said and (*said, _comment(events))
    if heard == self.said.get(serial):
      return False  # Nothing new: a reading time beside a rating, say.
    if heard is None:
      del self.said[serial]
      return self.loop.forget(serial)
    self.said[serial] = heard
    shown = [Answer(one.query, one.text, _expected(one)) for one in responses]
    value, kind, comment = heard
    reward = learned(self._reward_fn, value, kind, shown)
    return self.loop.hear(serial, *reward, comment)

  def _responses(self, showing: Showing) -> tuple[Response, ...]:
    candidates = tuple(
      Candidate(
        text=text,
        prompt_id=prompt.id,
        version=prompt.generation,
        propensity=min(1.0, math.exp(logp)),
        score=score,
      )
      for text, prompt, logp, score in zip(
        showing.candidates,
        showing.prompts,
        showing.logps,
        showing.scores,
        strict=True,
      )
    )
    return tuple(
      Response(
        id=self._id(showing.serial, place),
        query=showing.query,
        text=candidates[place].text,
        prompt_id=candidates[place].prompt_id,
        version=candidates[place].version,
        model=self._model,
        session=self.session,
        shown_at=self._clock(),
        question_id=self._id(showing.serial),
        candidates=candidates,
        shown_index=place,
        metadata={
          'serial': showing.serial,
          'since': self.since,
          'places': list(showing.places),
          'logps': list(showing.logps),
          'temperature': showing.temperature,
          'temperature_logp': showing.temperature_logp,
        },
      )
      for place in showing.places
    )

  def _question(self, response: Response) -> list[Response]:
    """The one or two responses to a question, the first one first."""
    facts = response.metadata
    ids = [self._id(facts['serial'], place) for place in facts['places']]
    return [self.store.response(name) for name in ids]

  def _id(self, serial: int, place: int | None = None) -> str:
    """Name of a question, or of a response to it, which says no more of it."""
    text = f'{self.session} {serial} {place}'
    return hashlib.sha256(text.encode()).hexdigest()[:20]

  def _showing(self, responses: Sequence[Response]) -> Showing:
    """What `_responses` made responses of."""
    first = responses[0]
    facts = first.metadata
    shown, *others = facts['places']
    return Showing(
      facts['serial'],
      first.query,
      tuple(self.loop.history[one.prompt_id] for one in first.candidates),
      tuple(one.text for one in first.candidates),
      tuple(facts['logps']),
      tuple(one.score or 0.0 for one in first.candidates),
      shown,
      others[0] if others else None,
      facts['temperature'],
      facts['temperature_logp'],
    )


def hear(responses: Sequence[Response], events: Sequence[Event]) -> Said | None:
  """Returns what stands of all that was said about the answers to a question.

  Args:
    responses: one, or the two of a pair.
    events: all about them, in the order of the store.

  Returns:
    The mean of the ratings or thumbs if there are any, of a pair the mean of
    the choices for the first one; without such, the score of
    `feedback.aggregate`. None if nothing was said, if it was taken back, or if
    the question was skipped.
  """
  standing = aggregate.standing(events)
  settling = [e for e in standing if settles(e)]
  spoken = [e for e in settling if not isinstance(e, Skip)]
  if not spoken and (settling or len(standing) < len(events)):
    return None
  if len(responses) > 1:
    return _compare(responses, standing)
  (response,) = responses
  ratings = [e for e in spoken if isinstance(e, Explicit)]
  if ratings:
    is_thumbs = all(e.scale in _THUMBS for e in ratings)
    units = [scales.to_unit(e.scale, e.value) for e in ratings]
    return sum(units) / len(units), 'thumbs' if is_thumbs else 'rating'
  score = aggregate.aggregate(response, standing)
  return None if score is None else (score, 'rating')


def _comment(events: Sequence[Event]) -> str:
  """The last comment that stands."""
  comments = [
    e.comment for e in aggregate.standing(events) if e.comment.strip()
  ]
  return comments[-1] if comments else ''


def _compare(
  responses: Sequence[Response], standing: Sequence[Event]
) -> Said | None:
  """What was said about two answers beside each other."""
  first, second = responses
  chosen = [
    unit
    for event in standing
    if isinstance(event, Preference)
    and (unit := aggregate.unit_score(first, event)) is not None
  ]
  if chosen:
    return sum(chosen) / len(chosen), 'pair'
  one, two = (aggregate.aggregate(r, standing) for r in (first, second))
  if one is not None and two is not None:
    return pair_reward(one, two), 'pair'
  return None if one is None else (one, 'rating')


def _expected(response: Response) -> float:
  """What critics expected of an answer when it was shown."""
  assert response.shown_index is not None
  return response.candidates[response.shown_index].score or 0.0
