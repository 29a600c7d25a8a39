"""Rows of the two tables, to and from the structs of `events`."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterable
from typing import Any

from promptrl_jax.feedback import events as events_lib
from promptrl_jax.feedback import scales
from promptrl_jax.feedback.errors import (
  IdTaken,
  MalformedFeedback,
  UnknownEvent,
  UnknownResponse,
)
from promptrl_jax.feedback.events import (
  Event,
  Preference,
  Response,
  Signal,
  Undo,
)

_JSON = ('candidates', 'metadata')
_RESPONSE = (
  'id',
  'query',
  'text',
  'prompt_id',
  'version',
  'model',
  'session',
  'shown_at',
  'question_id',
  'candidates',
  'shown_index',
  'metadata',
)
_OPTIONAL = ('scale', 'value', 'other_id', 'event_id')
_EVENT = (
  'id',
  'kind',
  'response_id',
  'at',
  'session',
  'rater',
  'comment',
  'metadata',
  *_OPTIONAL,
)
RESPONSE_COLUMNS = ', '.join(f'responses.{name}' for name in _RESPONSE)
EVENT_COLUMNS = ', '.join(f'events.{name}' for name in _EVENT)


def to_response(row: Iterable[Any]) -> Response:
  """Makes a response of the values of `RESPONSE_COLUMNS`."""
  fields: dict[str, Any] = dict(zip(_RESPONSE, row, strict=True))
  fields |= {name: json.loads(fields[name]) for name in _JSON}
  return events_lib.response_from_fields(fields)


def to_event(row: Iterable[Any]) -> Event:
  """Makes an event of the values of `EVENT_COLUMNS`."""
  fields: dict[str, Any] = dict(zip(_EVENT, row, strict=True))
  fields['metadata'] = json.loads(fields['metadata'])
  return events_lib.from_fields(
    {k: v for k, v in fields.items() if v is not None or k not in _OPTIONAL}
  )


def find_response(
  database: sqlite3.Connection, response_id: str
) -> Response | None:
  row = database.execute(
    f'SELECT {RESPONSE_COLUMNS} FROM responses WHERE id = ?', (response_id,)
  ).fetchone()
  return row and to_response(row)


def find_event(database: sqlite3.Connection, event_id: str) -> Event | None:
  row = database.execute(
    f'SELECT {EVENT_COLUMNS} FROM events WHERE id = ?', (event_id,)
  ).fetchone()
  return row and to_event(row)


def add_response(database: sqlite3.Connection, response: Response) -> bool:
  """Inserts a response; returns whether it was new.

  Raises:
    IdTaken: another one has its id.
  """
  stored = find_response(database, response.id)
  if stored is not None:
    return _same(stored, response)
  _insert(database, 'responses', events_lib.response_to_fields(response))
  return True


def add_event(database: sqlite3.Connection, event: Event) -> bool:
  """Inserts an event; returns whether it was new.

  Raises:
    IdTaken: another one has its id.
    OutOfScale: its value is not on its scale.
    UnknownResponse, UnknownEvent: it is about something that is not stored.
    MalformedFeedback: it compares, or takes back, what it cannot.
  """
  stored = find_event(database, event.id)
  if stored is not None:
    return _same(stored, event)
  response = known_response(database, event.response_id)
  if isinstance(event, Signal):
    scales.check(event.scale, event.kind, event.value)
  if isinstance(event, Preference):
    other = known_response(database, event.other_id)
    if other.question_id != response.question_id:
      raise MalformedFeedback(
        f'responses {response.id!r} and {other.id!r} answer different '
        'questions: expected two with one question_id'
      )
  if isinstance(event, Undo):
    _check_undo(database, event)
  fields = events_lib.to_fields(event) | {'received_at': time.time()}
  _insert(database, 'events', fields)
  return True


def known_response(database: sqlite3.Connection, response_id: str) -> Response:
  """Returns a response.

  Raises:
    UnknownResponse: there is none of that id.
  """
  response = find_response(database, response_id)
  if response is None:
    raise UnknownResponse(
      f'response {response_id!r} is not in this store: expected the id of a '
      'response that was shown'
    )
  return response


def known_event(database: sqlite3.Connection, event_id: str) -> Event:
  """Returns an event.

  Raises:
    UnknownEvent: there is none of that id.
  """
  event = find_event(database, event_id)
  if event is None:
    raise UnknownEvent(
      f'event {event_id!r} is not in this store: expected the id of an event '
      'that was stored'
    )
  return event


def _check_undo(database: sqlite3.Connection, undo: Undo) -> None:
  event = known_event(database, undo.event_id)
  if isinstance(event, Undo) or event.response_id != undo.response_id:
    raise MalformedFeedback(
      f'event {undo.event_id!r} is an {event.kind} event about response '
      f'{event.response_id!r}: expected one about {undo.response_id!r} that '
      'can be taken back'
    )


def _same(stored: Any, given: Any) -> bool:
  """Returns False: it is not new.

  Raises:
    IdTaken: the two differ.
  """
  if stored != given:
    kind = 'response' if isinstance(given, Response) else 'event'
    raise IdTaken(
      f'{kind} {given.id!r} is stored with other content: expected an id of '
      'its own for each'
    )
  return False


def _insert(
  database: sqlite3.Connection, table: str, fields: dict[str, Any]
) -> None:
  fields |= {k: json.dumps(fields[k]) for k in _JSON if k in fields}
  names = ', '.join(fields)
  marks = ', '.join('?' * len(fields))
  database.execute(
    f'INSERT INTO {table} ({names}) VALUES ({marks})', tuple(fields.values())
  )
