"""One score in [0, 1] for an answer, from everything that is known about it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence

from promptrl_jax.feedback import scales
from promptrl_jax.feedback.events import (
  Correction,
  Event,
  Explicit,
  Implicit,
  Preference,
  Response,
  Undo,
)


@dataclasses.dataclass(frozen=True)
class Weights:
  """How much kinds of feedback count against each other.

  Attributes:
    explicit: ratings.
    preference: choices between two responses.
    implicit: what was done, and how much of the answer was corrected.
  """

  explicit: float = 1.0
  preference: float = 0.9
  implicit: float = 0.5

  def __post_init__(self) -> None:
    for name, value in vars(self).items():
      if not (math.isfinite(value) and value >= 0):
        raise ValueError(
          f'{name}={value}: expected a finite number, at least 0'
        )


def aggregate(
  response: Response,
  events: Sequence[Event],
  weights: Weights = Weights(),
) -> float | None:
  """Returns the weighted mean of what kinds of feedback say about a response.

  A kind says the mean of its events. What was undone does not count, nor does
  what is about other responses, nor how long an answer was read if something
  else was done with it: whoever asks again has read it, too. A preference
  counts for the side on which the response was: the one that was chosen gains
  what the other one loses.

  Returns:
    A score in [0, 1]; None if there is no feedback, or none with a weight.
  """
  worth: dict[str, list[float]] = {}
  reading: list[float] = []
  for event in standing(events):
    unit = unit_score(response, event)
    if unit is None:
      continue
    if isinstance(event, Implicit) and event.scale == 'reading_time':
      reading.append(unit)
      continue
    kind = 'implicit' if isinstance(event, Correction) else event.kind
    worth.setdefault(kind, []).append(unit)
  if reading:
    worth.setdefault('implicit', reading)
  total = sum(getattr(weights, kind) for kind in worth)
  if not total:
    return None
  return (
    sum(
      getattr(weights, kind) * sum(units) / len(units)
      for kind, units in worth.items()
    )
    / total
  )


@dataclasses.dataclass(frozen=True)
class PromptScore:
  """What is known about a version of a prompt.

  Attributes:
    mean: of the scores of its responses, in [0, 1].
    count: how many of its responses have a score.
  """

  mean: float
  count: int


def by_prompt(
  responses: Iterable[Response],
  events: Iterable[Event],
  weights: Weights = Weights(),
) -> dict[tuple[str, int], PromptScore]:
  """Returns what feedback says about prompts, by id and version.

  Each event counts for the prompt that gave its response, whichever prompt is
  in use when it comes. Prompts without feedback are left out.
  """
  about: dict[str, list[Event]] = {}
  for event in standing(events):
    for response_id in subjects(event):
      about.setdefault(response_id, []).append(event)
  scores: dict[tuple[str, int], list[float]] = {}
  for response in responses:
    score = aggregate(response, about.get(response.id, ()), weights)
    if score is not None:
      prompt = response.prompt_id, response.version
      scores.setdefault(prompt, []).append(score)
  return {
    prompt: PromptScore(sum(values) / len(values), len(values))
    for prompt, values in scores.items()
  }


def subjects(event: Event) -> tuple[str, ...]:
  """Returns the ids of the responses that an event is about."""
  if isinstance(event, Preference):
    return event.response_id, event.other_id
  return (event.response_id,)


def standing(events: Iterable[Event]) -> list[Event]:
  """Returns the events that were not taken back, without those that did."""
  events = list(events)
  undone = {event.event_id for event in events if isinstance(event, Undo)}
  return [
    event
    for event in events
    if event.id not in undone and not isinstance(event, Undo)
  ]


def unit_score(response: Response, event: Event) -> float | None:
  """Returns what one event says about a response, in [0, 1]; None: nothing."""
  if isinstance(event, Preference) and response.id == event.other_id:
    return 1.0 - scales.to_unit(event.scale, event.value)
  if response.id != event.response_id:
    return None
  if isinstance(event, Explicit | Implicit | Preference):
    return scales.to_unit(event.scale, event.value)
  if isinstance(event, Correction):
    distance = edit_distance(response.text, event.value)
    return scales.to_unit('edit_distance', distance)
  return None


def edit_distance(a: str, b: str) -> float:
  """Returns the edits between two texts over the length of the longer one.

  Edits insert, delete or replace a character. A column of Levenshtein's table
  is kept as two integers with one bit for each character of `a`, as in Hyyrö,
  "A bit-vector algorithm for computing Levenshtein and Damerau edit distances",
  2003, so that texts of thousands of characters take milliseconds.

  Returns:
    A number in [0, 1]; 0 for two empty texts.
  """
  if not a or not b:
    return float(a != b)
  places: dict[str, int] = {}
  for i, character in enumerate(a):
    places[character] = places.get(character, 0) | 1 << i
  full, last = (1 << len(a)) - 1, 1 << (len(a) - 1)
  # Where the table is larger, or smaller, by one than in the row above; and
  # below, than in the column before.
  row_up, row_down, distance = full, 0, len(a)
  for character in b:
    match = places.get(character, 0)
    # Where the table is what it is one row and one column before.
    same = (((match & row_up) + row_up) ^ row_up) | match | row_down
    column_up = row_down | (full & ~(same | row_up))
    column_down = row_up & same
    distance += bool(column_up & last) - bool(column_down & last)
    column_up = (column_up << 1 | 1) & full
    column_down = column_down << 1 & full
    row_up = column_down | (full & ~(same | column_up))
    row_down = column_up & same
  return distance / max(len(a), len(b))
