"""What raw values mean: from a scale and a value to a number in [0, 1].

Events store the raw value beside the name of its scale. It is mapped when it is
used, so that a better mapping needs no new feedback.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

from promptrl_jax.feedback.errors import OutOfScale
from promptrl_jax.registry import Registry

FIRST, SECOND, TIE = 'a', 'b', 'tie'
# Seconds of reading that count fully, and after which they count for less.
_READ_S, _FADE_S = 30.0, 60.0


@dataclasses.dataclass(frozen=True)
class Scale:
  """What the values of a scale are, and what they are worth.

  Attributes:
    kind: kind of the events that may use it; see `events.KINDS`.
    expected: its values in words, for errors.
    accepts: whether a value is on the scale.
    to_unit: from a value on the scale to [0, 1], where 1 is best.
  """

  kind: str
  expected: str
  accepts: Callable[[Any], bool]
  to_unit: Callable[[Any], float]


def _is_number(value: Any) -> bool:
  return (
    isinstance(value, int | float)
    and not isinstance(value, bool)
    and math.isfinite(value)
  )


def rating(low: float, high: float) -> Scale:
  """Returns the scale of explicit ratings between two numbers."""
  return Scale(
    'explicit',
    f'a number from {low:g} to {high:g}',
    lambda value: _is_number(value) and low <= value <= high,
    lambda value: (value - low) / (high - low),
  )


def choice(kind: str, worth: dict[float | str, float]) -> Scale:
  """Returns the scale of a few values, each with its worth."""
  return Scale(
    kind,
    'one of ' + ', '.join(map(str, worth)),
    lambda value: isinstance(value, int | float | str) and value in worth,
    lambda value: worth[value],
  )


def reading_time(seconds: float) -> float:
  """Worth of reading for some time: rises to 1 at 30 s, then fades to 0 at 90.

  A clock that was set back gives seconds below 0, which are worth nothing.
  """
  if seconds <= _READ_S:
    return max(0.0, seconds / _READ_S)
  return max(0.0, 1 - (seconds - _READ_S) / _FADE_S)


SCALES: Registry[Scale] = Registry('scale')
SCALES.register('thumbs', choice('explicit', {1: 1.0, 0: 0.0}))
SCALES.register('sign', choice('explicit', {1: 1.0, -1: 0.0}))
SCALES.register('rating_1_5', rating(1, 5))
SCALES.register('rating_1_10', rating(1, 10))
SCALES.register(
  'reading_time',
  Scale('implicit', 'a number of seconds', _is_number, reading_time),
)
# Whether the answer was copied, and whether the question was asked again.
SCALES.register('copied', choice('implicit', {1: 1.0, 0: 0.0}))
SCALES.register('asked_again', choice('implicit', {1: 0.0, 0: 1.0}))
# Edits over the length of the longer text; see `aggregate.edit_distance`.
SCALES.register(
  'edit_distance',
  Scale(
    'implicit',
    'a number from 0 to 1',
    lambda value: _is_number(value) and 0 <= value <= 1,
    lambda value: 1.0 - value,
  ),
)
# Which of two responses is better: what the first one is worth by it.
SCALES.register('ab', choice('preference', {FIRST: 1.0, SECOND: 0.0, TIE: 0.5}))
register = SCALES.register


def check(scale: str, kind: str, value: Any) -> None:
  """Makes sure that a value is on a scale, and the scale one of a kind.

  Raises:
    OutOfScale: it is not; the message says what was expected.
  """
  if scale not in SCALES or SCALES[scale].kind != kind:
    names = [name for name, other in SCALES.items() if other.kind == kind]
    raise OutOfScale(
      f'scale {scale!r} of {kind} feedback: expected one of {", ".join(names)}'
    )
  if not SCALES[scale].accepts(value):
    raise OutOfScale(
      f'{value!r} is not on the scale {scale}: expected '
      f'{SCALES[scale].expected}'
    )


def to_unit(scale: str, value: float | str) -> float:
  """Returns what a raw value is worth, in [0, 1].

  Raises:
    ValueError: there is no such scale; lists those there are.
  """
  return SCALES[scale].to_unit(value)
