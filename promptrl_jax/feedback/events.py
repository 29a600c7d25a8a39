"""Answers that were shown, and what people said about them.

A `Response` is an answer with the prompt and version that gave it. Events are
about a response, by its id. Each event has an id of its own, which whoever made
it chooses before it is sent: what is sent twice is stored once.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any, ClassVar

from promptrl_jax.feedback.errors import MalformedFeedback

_ID_LIMIT = 200  # characters
_NUMBER_LIMIT = 1e15


@dataclasses.dataclass(frozen=True, kw_only=True)
class Candidate:
  """An answer that could have been shown.

  Attributes:
    text: the answer.
    prompt_id, version: the prompt that led to it.
    propensity: the probability with which it was to be shown.
    score: what a critic expected of it, if one was asked.
  """

  text: str
  prompt_id: str
  version: int = 0
  propensity: float
  score: float | None = None

  def __post_init__(self) -> None:
    _check_texts(self, 'text', 'prompt_id')
    _check_version(self.version)
    _check_number('propensity', self.propensity)
    if not 0 <= self.propensity <= 1:
      raise MalformedFeedback(
        f'propensity={self.propensity}: expected a probability'
      )
    if self.score is not None:
      _check_number('score', self.score)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Response:
  """An answer that is shown to a person.

  Attributes:
    id: unique among all responses of a store.
    query: what was asked.
    text: the answer.
    prompt_id, version: the prompt that led to it, which feedback counts for.
    model: name and version of the model that answered.
    session: the run or session that it belongs to.
    shown_at: Unix time in seconds.
    question_id: responses that are shown side by side share it; empty: alone.
    candidates: all answers that this one was drawn from, it included.
    shown_index: its place among them.
    metadata: further JSON data, such as log-probs of its tokens.
  """

  id: str
  query: str
  text: str
  prompt_id: str
  version: int = 0
  model: str = ''
  session: str = ''
  shown_at: float
  question_id: str = ''
  candidates: tuple[Candidate, ...] = ()
  shown_index: int | None = None
  metadata: Mapping[str, Any] = dataclasses.field(default_factory=dict)

  def __post_init__(self) -> None:
    _check_id('id', self.id)
    object.__setattr__(self, 'question_id', self.question_id or self.id)
    _check_id('question_id', self.question_id)
    _check_texts(self, 'query', 'text', 'prompt_id', 'model', 'session')
    _check_version(self.version)
    _check_number('shown_at', self.shown_at)
    object.__setattr__(self, 'metadata', _as_json(self.metadata))
    if not self.candidates:
      if self.shown_index is not None:
        raise MalformedFeedback(
          f'shown_index={self.shown_index} without candidates: expected None'
        )
      return
    shown = self.shown_index
    if shown is None or not 0 <= shown < len(self.candidates):
      raise MalformedFeedback(
        f'shown_index={shown}: expected the place of the response among its '
        f'{len(self.candidates)} candidates'
      )
    candidate = self.candidates[shown]
    if (candidate.text, candidate.prompt_id, candidate.version) != (
      self.text,
      self.prompt_id,
      self.version,
    ):
      raise MalformedFeedback(
        f'response {self.id!r} and its candidate {shown} differ in text, '
        'prompt or version: expected the one that is shown'
      )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Event:
  """Something that a person said or did about a response.

  Attributes:
    id: chosen before the event is sent; unique among all events of a store.
    response_id: the response that it is about.
    at: Unix time in seconds, by the clock of whoever made the event.
    session: where it was made: a page that was opened, say.
    rater: who made it, by whatever name; may be empty.
    comment: why, in words; may be empty.
    metadata: further JSON data, such as which response stood first.
  """

  kind: ClassVar[str] = ''
  id: str
  response_id: str
  at: float
  session: str = ''
  rater: str = ''
  comment: str = ''
  metadata: Mapping[str, Any] = dataclasses.field(default_factory=dict)

  def __post_init__(self) -> None:
    _check_id('id', self.id)
    _check_id('response_id', self.response_id)
    _check_number('at', self.at)
    _check_texts(self, 'session', 'rater', 'comment')
    object.__setattr__(self, 'metadata', _as_json(self.metadata))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Skip(Event):
  """The person does not rate the response; the comment may say why."""

  kind: ClassVar[str] = 'skip'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Undo(Event):
  """Takes back an earlier event about the same response.

  Attributes:
    event_id: id of that event, which is no `Undo` itself.
  """

  kind: ClassVar[str] = 'undo'
  event_id: str

  def __post_init__(self) -> None:
    super().__post_init__()
    _check_id('event_id', self.event_id)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Correction(Event):
  """The answer as the person would have it; few edits speak for the answer.

  Attributes:
    value: the corrected text.
  """

  kind: ClassVar[str] = 'correction'
  value: str

  def __post_init__(self) -> None:
    super().__post_init__()
    _check_texts(self, 'value')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Signal(Event):
  """An event with a raw value on a scale.

  Attributes:
    value: the raw value, as it was given.
    scale: name of its scale; see `scales.SCALES`. The store refuses values that
      are not on it.
  """

  value: float | str
  scale: str

  def __post_init__(self) -> None:
    super().__post_init__()
    _check_id('scale', self.scale)
    if isinstance(self.value, str):
      _check_texts(self, 'value')
    else:
      _check_number('value', self.value)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Explicit(Signal):
  """A rating: `thumbs`, `sign`, `rating_1_5` or `rating_1_10`."""

  kind: ClassVar[str] = 'explicit'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Implicit(Signal):
  """What was done: `reading_time`, `copied`, `asked_again`, `edit_distance`."""

  kind: ClassVar[str] = 'implicit'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Preference(Signal):
  """Which of two responses to one question is better.

  Attributes:
    value: `a` for the response of `response_id`, `b` for that of `other_id`, or
      `tie`, wherever on the page they stood.
    other_id: the other response.
  """

  kind: ClassVar[str] = 'preference'
  scale: str = 'ab'
  other_id: str

  def __post_init__(self) -> None:
    super().__post_init__()
    _check_id('other_id', self.other_id)
    if self.other_id == self.response_id:
      raise MalformedFeedback(
        f'other_id={self.other_id!r}: expected another response than '
        'response_id names'
      )


KINDS: dict[str, type[Event]] = {
  event.kind: event
  for event in (Explicit, Implicit, Preference, Correction, Skip, Undo)
}
# Kinds that answer a question; the others only go with an answer.
SETTLING = ('explicit', 'preference', 'correction', 'skip')


def to_fields(event: Event) -> dict[str, Any]:
  """Returns an event as JSON data, with its `kind`."""
  return {'kind': event.kind, **dataclasses.asdict(event)}


def from_fields(fields: Mapping[str, Any]) -> Event:
  """Makes an event of JSON data, as `to_fields` returns it.

  Raises:
    MalformedFeedback: a field is missing, unknown, or not of its type.
  """
  if not isinstance(fields, Mapping):
    raise MalformedFeedback(
      f'{fields!r:.80}: expected an object with the fields of an event'
    )
  rest = dict(fields)
  kind = rest.pop('kind', None)
  if not isinstance(kind, str) or kind not in KINDS:
    raise MalformedFeedback(
      f'kind={kind!r:.80}: expected one of {", ".join(KINDS)}'
    )
  return _make(KINDS[kind], rest)


def response_to_fields(response: Response) -> dict[str, Any]:
  """Returns a response as JSON data."""
  return dataclasses.asdict(response)


def response_from_fields(fields: Mapping[str, Any]) -> Response:
  """Makes a response of JSON data, as `response_to_fields` returns it.

  Raises:
    MalformedFeedback: a field is missing, unknown, or not of its type.
  """
  candidates = tuple(_make(Candidate, c) for c in fields.get('candidates', ()))
  return _make(Response, {**fields, 'candidates': candidates})


def _make(cls: Any, fields: Mapping[str, Any]) -> Any:
  known = {field.name: field for field in dataclasses.fields(cls)}
  unknown = sorted(fields.keys() - known.keys(), key=str)
  missing = [
    name
    for name, field in known.items()
    if name not in fields
    and field.default is dataclasses.MISSING
    and field.default_factory is dataclasses.MISSING
  ]
  for problem, names in (('unknown', unknown), ('missing', missing)):
    if names:
      raise MalformedFeedback(
        f'{cls.__name__.lower()} with {problem} fields '
        f'{", ".join(map(str, names)):.80}: expected {", ".join(known)}'
      )
  return cls(**fields)


def _as_json(metadata: Any) -> Any:
  try:
    return json.loads(json.dumps(dict(metadata), allow_nan=False))
  except (TypeError, ValueError) as error:
    raise MalformedFeedback(
      f'metadata={metadata!r:.80}: expected an object of JSON data ({error})'
    ) from None


def _check_id(name: str, value: Any) -> None:
  if not isinstance(value, str) or not 0 < len(value) <= _ID_LIMIT:
    raise MalformedFeedback(
      f'{name}={value!r:.80}: expected a text of 1 to {_ID_LIMIT} characters'
    )
  _check_encodes(name, value)


def _check_texts(struct: Any, *names: str) -> None:
  for name in names:
    value = getattr(struct, name)
    if not isinstance(value, str):
      raise MalformedFeedback(f'{name}={value!r:.80}: expected a text')
    _check_encodes(name, value)


def _check_encodes(name: str, value: str) -> None:
  try:
    value.encode()
  except UnicodeEncodeError as error:
    # SQLite stores UTF-8, which has no half of a pair.
    raise MalformedFeedback(
      f'{name} has an unpaired surrogate at character {error.start}: expected '
      'a text that UTF-8 encodes'
    ) from None


def _check_number(name: str, value: Any) -> None:
  # NaN is not less than anything, and SQLite's integers have 64 bits.
  if not isinstance(value, int | float) or not abs(value) < _NUMBER_LIMIT:
    raise MalformedFeedback(
      f'{name}={value!r:.80}: expected a number below {_NUMBER_LIMIT:g} in size'
    )


def _check_version(version: Any) -> None:
  if not isinstance(version, int) or not 0 <= version < _NUMBER_LIMIT:
    raise MalformedFeedback(
      f'version={version!r:.80}: expected a whole number of at least 0'
    )
