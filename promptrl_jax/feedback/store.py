"""Keeps responses and what people said about them in one SQLite file.

All writes go through one thread (`writer`), reads through connections of their
own, which do not wait for it. Several processes may open one file.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import queue
import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any

from promptrl_jax.feedback import database as database_lib
from promptrl_jax.feedback import rows
from promptrl_jax.feedback.errors import MalformedFeedback, StoreClosed
from promptrl_jax.feedback.events import (
  ASKED_AGAIN,
  SETTLING,
  Event,
  Response,
)
from promptrl_jax.feedback.writer import Future, Writer

_TIMEOUT_S = 10.0  # How long SQLite waits for another process, each time.


@dataclasses.dataclass(frozen=True)
class Entry:
  """An event as it was stored.

  Attributes:
    seq: its place in the order in which events were stored, from 1.
    received_at: Unix time in seconds at which it came, by the store's clock.
    event: what was stored.
  """

  seq: int
  received_at: float
  event: Event


@dataclasses.dataclass(frozen=True)
class Progress:
  """How many questions there are, and how many of them were answered."""

  questions: int
  settled: int


class Store:
  """Feedback in a file; safe to share among threads."""

  def __init__(self, writer: Writer, path: pathlib.Path, timeout_s: float):
    """Takes over a writer; see `Store.open`."""
    self.path = path
    self._writer = writer
    self._timeout_s = timeout_s
    self._idle: queue.LifoQueue[sqlite3.Connection] = queue.LifoQueue()
    self._process = os.getpid()
    self._is_closed = False

  @classmethod
  def open(
    cls, path: str | os.PathLike[str], timeout_s: float = _TIMEOUT_S
  ) -> Store:
    """Opens a store, or creates it with its folders.

    Args:
      timeout_s: how long to wait for another process that writes, each of
        `database.ATTEMPTS` times.

    Raises:
      StoreError: the file is no store, damaged, of a newer version or locked;
        see `database.open_writer`. Nothing is changed then.
    """
    path = pathlib.Path(path).absolute()
    return cls(Writer(path, timeout_s), path, timeout_s)

  def __enter__(self) -> Store:
    return self

  def __exit__(self, *unused: object) -> None:
    self.close()

  def add_responses(self, responses: Sequence[Response]) -> list[bool]:
    """Stores responses, all of them or none; says which were new.

    Raises:
      IdTaken: an id is in use for another response.
      StoreError: nothing could be stored.
    """
    return self.submit_responses(responses).result()

  def add_response(self, response: Response) -> bool:
    """Stores a response; returns whether it was new."""
    return self.add_responses([response])[0]

  def add_events(self, events: Sequence[Event]) -> list[bool]:
    """Stores events, all of them or none; says which were new.

    Returns once they are on the disk. An event that is stored already is not
    stored again, so that whoever got no answer can send it once more.

    Raises:
      UnknownResponse, UnknownEvent, OutOfScale, MalformedFeedback, IdTaken: an
        event is refused; see `rows.add_event`.
      StoreError: nothing could be stored.
    """
    return self.submit_events(events).result()

  def add_event(self, event: Event) -> bool:
    """Stores an event; returns whether it was new. See `add_events`."""
    return self.add_events([event])[0]

  def submit_responses(self, responses: Sequence[Response]) -> Future:
    """Begins `add_responses`; its result comes when it is on the disk."""
    responses = _all_of(responses, Response)
    return self._writer.submit(
      lambda database: [rows.add_response(database, r) for r in responses]
    )

  def submit_events(self, events: Sequence[Event]) -> Future:
    """Begins `add_events`; its result comes when it is on the disk."""
    events = _all_of(events, Event)
    return self._writer.submit(
      lambda database: [rows.add_event(database, e) for e in events]
    )

  def merge(self, other: Store) -> tuple[int, int]:
    """Takes over what another store has and this one lacks, whoever rated.

    Doing it again changes nothing. `received_at` becomes the present time.

    Returns:
      How many responses were new, and how many events.

    Raises:
      IdTaken: an id means one thing here and another there; nothing is stored.
      StoreError: nothing could be stored.
    """
    events = other.events()
    responses = other.responses()  # read later, so that no event lacks its own

    def add(database: sqlite3.Connection) -> tuple[int, int]:
      return (
        sum(rows.add_response(database, response) for response in responses),
        sum(rows.add_event(database, event) for event in events),
      )

    return self._writer.submit(add).result()

  def response(self, response_id: str) -> Response:
    """Returns a response.

    Raises:
      UnknownResponse: there is none of that id.
    """
    with self.read() as database:
      return rows.known_response(database, response_id)

  def responses(self, session: str | None = None) -> list[Response]:
    """Returns all responses, or those of a session, in order of arrival."""
    query = (
      f'SELECT {rows.RESPONSE_COLUMNS} FROM responses '
      'WHERE ?1 IS NULL OR session = ?1 ORDER BY seq'
    )
    with self.read() as database:
      return [
        rows.to_response(row) for row in database.execute(query, (session,))
      ]

  def event(self, event_id: str) -> Event:
    """Returns an event.

    Raises:
      UnknownEvent: there is none of that id.
    """
    with self.read() as database:
      return rows.known_event(database, event_id)

  def events(self, response_id: str | None = None) -> list[Event]:
    """Returns all events in order, or those about a response.

    Those include preferences in which it is the other one, and what takes them
    back.
    """
    where, values = '', ()
    if response_id is not None:
      where = """WHERE response_id = ?1 OR other_id = ?1
        OR event_id IN (SELECT id FROM events WHERE other_id = ?1)"""
      values = (response_id,)
    query = f'SELECT {rows.EVENT_COLUMNS} FROM events {where} ORDER BY seq'
    with self.read() as database:
      return [rows.to_event(row) for row in database.execute(query, values)]

  def since(self, seq: int, limit: int = 1000) -> list[Entry]:
    """Returns the events that were stored after the one of a number, in order.

    Args:
      seq: number of the last event that is known already; 0: none.
      limit: how many events to return at most.
    """
    query = (
      f'SELECT seq, received_at, {rows.EVENT_COLUMNS} FROM events '
      'WHERE seq > ? ORDER BY seq LIMIT ?'
    )
    with self.read() as database:
      return [
        Entry(row[0], row[1], rows.to_event(row[2:]))
        for row in database.execute(query, (seq, limit))
      ]

  def pending(
    self, session: str | None = None, limit: int = 100
  ) -> list[tuple[Response, ...]]:
    """Returns the oldest questions that nobody answered, with their responses.

    A question is answered by a rating, a preference, a correction, a skip or by
    being asked again, about any of its responses, if that was not taken back.
    """
    query = f"""
      SELECT {rows.RESPONSE_COLUMNS} FROM responses JOIN (
        SELECT question_id, MIN(seq) AS first FROM responses
        WHERE ?1 IS NULL OR session = ?1
        GROUP BY question_id HAVING SUM({_IS_SETTLED}) = 0
        ORDER BY first LIMIT ?2
      ) USING (question_id) ORDER BY first, seq
    """
    questions: dict[str, list[Response]] = {}
    with self.read() as database:
      for row in database.execute(query, (session, limit)):
        response = rows.to_response(row)
        questions.setdefault(response.question_id, []).append(response)
    return [tuple(responses) for responses in questions.values()]

  def asked_again(self, session: str | None = None) -> list[Response]:
    """Returns the responses that people want another one for, the oldest first.

    Somebody asked again, did not take that back, and no later question of the
    session has the same words.
    """
    query = f"""
      SELECT {rows.RESPONSE_COLUMNS} FROM responses
      WHERE (?1 IS NULL OR session = ?1) AND {_stands(_IS_ASKED_AGAIN)}
      AND NOT EXISTS (
        SELECT 1 FROM responses AS later WHERE later.seq > responses.seq
        AND later.query = responses.query AND later.session = responses.session
        AND later.question_id != responses.question_id
      ) ORDER BY seq
    """
    with self.read() as database:
      return [
        rows.to_response(row) for row in database.execute(query, (session,))
      ]

  def progress(self, session: str | None = None) -> Progress:
    """Returns how many questions there are, of a session or at all."""
    query = f"""
      SELECT COUNT(*), COALESCE(SUM(settled), 0) FROM (
        SELECT MAX({_IS_SETTLED}) AS settled FROM responses
        WHERE ?1 IS NULL OR session = ?1 GROUP BY question_id
      )
    """
    with self.read() as database:
      return Progress(*database.execute(query, (session,)).fetchone())

  def mark(self) -> tuple[int, int]:
    """Returns the numbers of the last response and of the last event.

    Whatever any process stores changes them, and reading them is quick.
    """
    query = """SELECT (SELECT COALESCE(MAX(seq), 0) FROM responses),
      (SELECT COALESCE(MAX(seq), 0) FROM events)"""
    with self.read() as database:
      return database.execute(query).fetchone()

  def wait(self, timeout_s: float) -> None:
    """Returns after the next commit of this process, or the time-out."""
    with self._writer.committed:
      self._writer.committed.wait(timeout_s)

  @contextlib.contextmanager
  def read(self) -> Iterator[sqlite3.Connection]:
    """Lends a connection that only reads, all of it from one moment.

    Raises:
      StoreClosed: the store was closed, or belongs to the parent process.
      StoreError: SQLite refuses.
    """
    if self._is_closed or os.getpid() != self._process:
      raise StoreClosed(
        f'{self.path} was closed, or opened before this process was forked: '
        'open it again'
      )
    with database_lib.translated(self.path):
      try:
        database = self._idle.get_nowait()
      except queue.Empty:
        database = database_lib.open_reader(self.path, self._timeout_s)
      try:
        database.execute('BEGIN')
        yield database
      finally:
        if database.in_transaction:
          database.execute('ROLLBACK')
        if self._is_closed:
          database.close()
        else:
          self._idle.put(database)

  def close(self) -> None:
    """Stores what was submitted, then closes the file."""
    if os.getpid() != self._process:
      return
    self._is_closed = True
    self._writer.close()
    while True:
      try:
        self._idle.get_nowait().close()
      except queue.Empty:
        return


def _stands(condition: str) -> str:
  """Whether a row of `responses` has such an event that was not taken back."""
  return f"""EXISTS (
    SELECT 1 FROM events WHERE events.response_id = responses.id
    AND ({condition})
    AND NOT EXISTS (SELECT 1 FROM events AS u WHERE u.event_id = events.id)
  )"""


_IS_ASKED_AGAIN = f"kind = 'implicit' AND scale = '{ASKED_AGAIN}' AND value = 1"
# Whether a row has an event that answers its question: `events.settles`.
_IS_SETTLED = _stands(
  f'kind IN ({", ".join(repr(kind) for kind in SETTLING)}) OR {_IS_ASKED_AGAIN}'
)


def _all_of(values: Sequence[Any], cls: type) -> list[Any]:
  values = list(values)
  for value in values:
    if not isinstance(value, cls):
      raise MalformedFeedback(
        f'{value!r:.80}: expected a {cls.__name__} of feedback.events'
      )
  return values
