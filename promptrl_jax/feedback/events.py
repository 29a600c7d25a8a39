"""Answers that were shown, and what people said about them.

A `Response` is an answer with the prompt and version that gave it. Events are
about a response, by its id. Each event has an id of its own, which whoever made
it chooses before it is sent: what is sent twice is stored once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

from promptrl_jax.feedback import checks
from promptrl_jax.feedback.errors import MalformedFeedback


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
    checks.texts(self, 'text', 'prompt_id')
    checks.version(self.version)
    checks.number('propensity', self.propensity)
    if not 0 <= self.propensity <= 1:
      raise MalformedFeedback(
        f'propensity={self.propensity}: expected a probability'
      )
    if self.score is not None:
      checks.number('score', self.score)


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
    checks.identifier('id', self.id)
    object.__setattr__(self, 'question_id', self.question_id or self.id)
    checks.identifier('question_id', self.question_id)
    checks.texts(self, 'query', 'text', 'prompt_id', 'model', 'session')
    checks.version(self.version)
    checks.number('shown_at', self.shown_at)
    object.__setattr__(self, 'metadata', checks.as_json(self.metadata))
    object.__setattr__(self, 'candidates', tuple(self.candidates))
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
    checks.identifier('id', self.id)
    checks.identifier('response_id', self.response_id)
    checks.number('at', self.at)
    checks.texts(self, 'session', 'rater', 'comment')
    object.__setattr__(self, 'metadata', checks.as_json(self.metadata))


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
    checks.identifier('event_id', self.event_id)


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
    checks.texts(self, 'value')


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
    checks.identifier('scale', self.scale)
    if isinstance(self.value, str):
      checks.texts(self, 'value')
    else:
      checks.number('value', self.value)


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
    checks.identifier('other_id', self.other_id)
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
ASKED_AGAIN = 'asked_again'  # the scale


def settles(event: Event) -> bool:
  """Returns whether an event answers a question.

  Whoever asks again wants another answer, and is done with this one.
  """
  if isinstance(event, Implicit):
    return event.scale == ASKED_AGAIN and event.value == 1
  return event.kind in SETTLING


def to_fields(event: Event) -> dict[str, Any]:
  """Returns an event as JSON data, with its `kind`."""
  return {'kind': event.kind, **dataclasses.asdict(event)}


def from_fields(fields: Mapping[str, Any]) -> Event:
  """Makes an event of JSON data, as `to_fields` returns it.

  Raises:
    MalformedFeedback: a field is missing, unknown, or not of its type.
  """
  rest = checks.fields(fields)
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
  rest = checks.fields(fields)
  candidates = [_make(Candidate, c) for c in rest.pop('candidates', ())]
  return _make(Response, rest | {'candidates': tuple(candidates)})


def _make(cls: Any, given: Any) -> Any:
  fields = checks.fields(given)
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
