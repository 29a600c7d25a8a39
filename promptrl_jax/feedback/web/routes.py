"""What the page asks for, as functions of the store and of JSON data.

What goes out is blind: of a response its id and text, and neither prompt,
version, model, candidates nor scores.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from promptrl_jax.feedback import events as events_lib
from promptrl_jax.feedback.errors import MalformedFeedback, UnknownResponse
from promptrl_jax.feedback.events import Event, Preference, Response
from promptrl_jax.feedback.store import Store
from promptrl_jax.feedback.web.limits import Limits
from promptrl_jax.feedback.web.problems import Refused

_MOST = 100  # questions of one answer


def identity(store: Store) -> str:
  """Returns a name of the file that says nothing about where it is."""
  return hashlib.sha256(str(store.path).encode()).hexdigest()[:16]


def questions(
  store: Store, session: str | None, limit: int = 20
) -> dict[str, Any]:
  """Returns what nobody answered yet, and how far all of it is.

  `tag` changes with anything else that is in it.
  """
  progress = store.progress(session)
  fields = {
    'questions': [
      # Another session may have a question of the same id.
      _blind([r for r in question if session in (None, r.session)])
      for question in store.pending(session, limit)
    ],
    'progress': {'questions': progress.questions, 'settled': progress.settled},
  }
  text = json.dumps(fields, sort_keys=True).encode()
  return fields | {'tag': hashlib.sha256(text).hexdigest()[:16]}


def _blind(responses: Sequence[Response]) -> dict[str, Any]:
  # By their ids: the order in which they were stored may say which is which.
  ordered = sorted(responses, key=lambda response: response.id)
  return {
    'question_id': ordered[0].question_id,
    'query': ordered[0].query,
    'responses': [{'id': r.id, 'text': r.text} for r in ordered],
  }


def add_events(
  store: Store, session: str | None, events: Sequence[Event]
) -> dict[str, Any]:
  """Stores events, all of them or none; says which were there before.

  Raises:
    FeedbackError: they are refused; see `Store.add_events`. A response of
      another session than that of the page is unknown to it.
  """
  if session is not None:
    for event in events:
      _check_session(store, session, event.response_id)
      if isinstance(event, Preference):
        _check_session(store, session, event.other_id)
  is_new = store.add_events(events)
  ids = [event.id for event in events]
  return {
    'stored': [id for id, new in zip(ids, is_new, strict=True) if new],
    'known': [id for id, new in zip(ids, is_new, strict=True) if not new],
  }


def _check_session(store: Store, session: str, response_id: str) -> None:
  if store.response(response_id).session != session:
    raise UnknownResponse(
      f'response {response_id!r} is not on this page: expected the id of a '
      'response that it shows'
    )


def read_events(content_type: str, body: bytes, limits: Limits) -> list[Event]:
  """Reads the events of a request.

  Raises:
    Refused: the body is not marked as JSON.
    MalformedFeedback: it is not an object with a list of events.
  """
  kind = content_type.partition(';')[0].strip().lower()
  if kind != 'application/json':
    raise Refused(
      415, 'NotJson', f'Content-Type {kind!r:.80}: expected application/json'
    )
  fields = _parse(body)
  if not isinstance(fields, dict) or fields.keys() != {'events'}:
    raise MalformedFeedback('body: expected {"events": [...]}')
  given = fields['events']
  if not isinstance(given, list) or not 0 < len(given) <= limits.events:
    raise MalformedFeedback(
      f'events={given!r:.80}: expected a list of 1 to {limits.events} events'
    )
  return [events_lib.from_fields(each) for each in given]


def _parse(body: bytes) -> Any:
  def refuse(constant: str) -> None:
    raise ValueError(f'{constant} is not JSON')

  try:
    return json.loads(body, parse_constant=refuse)
  except (ValueError, RecursionError) as error:
    raise MalformedFeedback(f'body: expected JSON ({error!s:.100})') from None


def read_session(own: str | None, query: Mapping[str, str]) -> str | None:
  """Returns the session that is asked for, of those the page may show.

  Raises:
    Refused: the page belongs to another one.
  """
  asked = query.get('session')
  if own is not None and asked not in (None, own):
    raise Refused(
      404, 'UnknownSession', f'session {asked!r:.80} is not on this page'
    )
  return asked if own is None else own


def read_number(
  query: Mapping[str, str], name: str, default: float, most: float
) -> float:
  """Returns a number of a query; more than `most` counts as `most`.

  Raises:
    MalformedFeedback: it is none, or below 0.
  """
  text = query.get(name, '')
  try:
    value = float(text) if text else default
  except ValueError:
    value = -1.0
  if not value >= 0:
    raise MalformedFeedback(f'{name}={text!r:.80}: expected a number from 0 on')
  return min(value, most)


def read_limit(query: Mapping[str, str]) -> int:
  """Returns how many questions are asked for."""
  return max(1, int(read_number(query, 'limit', 20, _MOST)))
