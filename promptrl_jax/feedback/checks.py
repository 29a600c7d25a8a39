"""Checks of the fields of responses and events.

Each raises `MalformedFeedback`, with the name of the field and what it is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from promptrl_jax.feedback.errors import MalformedFeedback

_ID_LIMIT = 200  # characters
_NUMBER_LIMIT = 1e15


def as_json(metadata: Any) -> Any:
  """Returns an object of JSON data as it will be read back."""
  try:
    return json.loads(json.dumps(dict(metadata), allow_nan=False))
  except (TypeError, ValueError, RecursionError) as error:
    raise MalformedFeedback(
      f'metadata={metadata!r:.80}: expected an object of JSON data ({error})'
    ) from None


def fields(given: Any) -> dict[str, Any]:
  """Returns a copy of an object of JSON data."""
  if not isinstance(given, Mapping):
    raise MalformedFeedback(f'{given!r:.80}: expected an object with fields')
  return dict(given)


def identifier(name: str, value: Any) -> None:
  if not isinstance(value, str) or not 0 < len(value) <= _ID_LIMIT:
    raise MalformedFeedback(
      f'{name}={value!r:.80}: expected a text of 1 to {_ID_LIMIT} characters'
    )
  _encodes(name, value)


def texts(struct: Any, *names: str) -> None:
  for name in names:
    value = getattr(struct, name)
    if not isinstance(value, str):
      raise MalformedFeedback(f'{name}={value!r:.80}: expected a text')
    _encodes(name, value)


def _encodes(name: str, value: str) -> None:
  try:
    value.encode()
  except UnicodeEncodeError as error:
    # SQLite stores UTF-8, which has no half of a pair.
    raise MalformedFeedback(
      f'{name} has an unpaired surrogate at character {error.start}: expected '
      'a text that UTF-8 encodes'
    ) from None


def number(name: str, value: Any) -> None:
  # NaN is not less than anything, and SQLite's integers have 64 bits.
  if not isinstance(value, int | float) or not abs(value) < _NUMBER_LIMIT:
    raise MalformedFeedback(
      f'{name}={value!r:.80}: expected a number below {_NUMBER_LIMIT:g} in size'
    )


def version(version: Any) -> None:
  if not isinstance(version, int) or not 0 <= version < _NUMBER_LIMIT:
    raise MalformedFeedback(
      f'version={version!r:.80}: expected a whole number of at least 0'
    )
