"""What was shown and what people said of it: the replay of GPRO.

  add (when a candidate is shown) -> row, without feedback
  rate (whenever feedback arrives) -> the same row, with it

A replay is a tree of NumPy arrays of fixed shape, so that the update is
compiled once and a checkpoint holds it. Rows that were rated weigh by how many
ratings have come since: feedback that arrives late is fresh when it arrives.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from promptrl_jax.training.gpro.config import GPROConfig

# NumPy's on the host; traced ones in an update.
Array = Any
NONE, RATING, THUMBS, PAIR = range(4)
KINDS = {'rating': RATING, 'thumbs': THUMBS, 'pair': PAIR}


class Replay(NamedTuple):
  """Rows of queries; a row whose serial is -1 is empty.

  Attributes:
    features: `[W, G, D]` of the candidates.
    mask: `[W, G]` bool, valid candidates.
    logps: `[W, G]`, log-probabilities of the policy that chose.
    scores: `[W, G]` satisfaction that the critic expected then.
    shown: `[W]` int, the candidate that was shown: the first one of a pair.
    other: `[W]` int, the second one of a pair.
    reward: `[W]` in [0, 1]. Of a pair: 1 if the first was preferred, 0 if the
      second was, 0.5 for a tie.
    kind: `[W]` int, `NONE` until there is feedback, `RATING`, `THUMBS`, `PAIR`.
    context: `[W, Q]` features of the query; one that is 0 if there are none.
    temperature: `[W]` int, number of the temperature that was chosen.
    temperature_logp: `[W]`, its log-probability.
    serial: `[W]` int, number of the query.
    time: `[W]` int, ratings so far when the row was rated, or was shown if it
      is not rated.
    queries: `[]` int, queries so far.
    ratings: `[]` int, ratings so far.
  """

  features: Array
  mask: Array
  logps: Array
  scores: Array
  shown: Array
  other: Array
  reward: Array
  kind: Array
  context: Array
  temperature: Array
  temperature_logp: Array
  serial: Array
  time: Array
  queries: Array
  ratings: Array


def empty(config: GPROConfig) -> Replay:
  """Returns a replay without rows."""
  rows, group = config.capacity, (config.capacity, config.candidates)
  integers = lambda: np.zeros(rows, np.int32)
  floats = lambda *shape: np.zeros(shape, np.float32)
  return Replay(
    features=floats(*group, config.features),
    mask=np.zeros(group, bool),
    logps=floats(*group),
    scores=floats(*group),
    shown=integers(),
    other=integers(),
    reward=floats(rows),
    kind=integers(),
    # A checkpoint cannot hold an array without elements.
    context=floats(rows, max(1, config.context)),
    temperature=integers(),
    temperature_logp=floats(rows),
    serial=integers() - 1,
    time=integers() - 1,
    queries=np.zeros((), np.int32),
    ratings=np.zeros((), np.int32),
  )


def pad(features: np.ndarray, group: int) -> tuple[np.ndarray, np.ndarray]:
  """Returns candidates as a row holds them: features `[G, D]`, mask `[G]`.

  Args:
    features: `[n, D]` of the candidates that there are.
    group: G, at least n.

  Raises:
    ValueError: there is no candidate, or more than G.
  """
  features = np.asarray(features)
  if not 0 < len(features) <= group:
    raise ValueError(f'{len(features)} candidates: expected 1 to {group}')
  padded = np.zeros((group, features.shape[1]), np.float32)
  padded[: len(features)] = features
  return padded, np.arange(group) < len(features)


def add(
  replay: Replay,
  features: np.ndarray,
  mask: np.ndarray,
  logps: np.ndarray,
  scores: np.ndarray,
  shown: int,
  other: int = 0,
  context: np.ndarray | None = None,
  temperature: int = 0,
  temperature_logp: float = 0.0,
) -> tuple[Replay, int]:
  """Returns a replay with one query more, and the serial number of the query.

  The row takes the place of the one that was heard of least recently.
  Arguments are those of one row of `Replay`.

  Raises:
    ValueError: `shown` is no valid candidate, features are not finite, or
      there are more or fewer than G candidates or D features.
  """
  features, mask = np.asarray(features), np.asarray(mask, bool)
  if features.shape != replay.features.shape[1:]:
    raise ValueError(
      f'features have the shape {features.shape}: expected '
      f'{replay.features.shape[1:]}, candidates that are not there masked out'
    )
  if not (0 <= shown < len(mask) and mask[shown]):
    raise ValueError(
      f'shown={shown}: expected the index of a valid candidate, of mask '
      f'{mask.tolist()}'
    )
  if not np.isfinite(features[mask]).all():
    raise ValueError('features of valid candidates must be finite')
  if context is None:
    context = np.zeros(replay.context.shape[1])
  row = np.lexsort((replay.serial, replay.time))[0]
  serial = int(replay.queries)
  values = {
    'features': np.where(mask[:, None], features, 0),
    'mask': mask,
    'logps': np.where(mask, logps, 0),
    'scores': np.where(mask, scores, 0),
    'shown': shown,
    'other': other,
    'reward': 0,
    'kind': NONE,
    'context': context,
    'temperature': temperature,
    'temperature_logp': temperature_logp,
    'serial': serial,
    'time': int(replay.ratings),
  }
  replay = _with_row(replay, row, values)
  return replay._replace(queries=np.array(serial + 1, np.int32)), serial


def rate(
  replay: Replay, serial: int, reward: float, kind: str
) -> tuple[Replay, bool]:
  """Returns a replay in which a query has feedback.

  Later feedback replaces what was said before.

  Args:
    serial: number that `add` returned.
    reward: in [0, 1], see `Replay`.
    kind: one of `KINDS`.

  Returns:
    The replay, and whether the row was still there; else nothing changed.

  Raises:
    ValueError: reward, kind or serial cannot be.
  """
  if kind not in KINDS:
    raise ValueError(f'kind={kind!r}: expected one of {", ".join(KINDS)}')
  if not 0 <= reward <= 1:
    raise ValueError(f'reward={reward}: expected a number in [0, 1]')
  row = _row_of(replay, serial)
  if row is None:
    return replay, False
  if kind == 'pair' and (
    replay.shown[row] == replay.other[row]
    or not replay.mask[row, replay.other[row]]
  ):
    raise ValueError(f'serial={serial}: the query showed no pair')
  ratings = int(replay.ratings) + 1
  values = {'reward': reward, 'kind': KINDS[kind], 'time': ratings}
  replay = _with_row(replay, row, values)
  return replay._replace(ratings=np.array(ratings, np.int32)), True


def withdraw(replay: Replay, serial: int) -> tuple[Replay, bool]:
  """Returns a replay in which a query has no feedback any more.

  The row stays and can be rated again. What updates have learned from the
  feedback fades in those that follow.

  Args:
    serial: number that `add` returned.

  Returns:
    The replay, and whether the row was there and had feedback.

  Raises:
    ValueError: there was no such query.
  """
  row = _row_of(replay, serial)
  if row is None or replay.kind[row] == NONE:
    return replay, False
  return _with_row(replay, row, {'reward': 0, 'kind': NONE}), True


def _row_of(replay: Replay, serial: int) -> np.intp | None:
  """The row of a query; None if a newer one has taken its place."""
  if not 0 <= serial < replay.queries:
    raise ValueError(
      f'serial={serial}: expected the number of one of {replay.queries} queries'
    )
  rows = np.flatnonzero(np.asarray(replay.serial) == serial)
  return rows[0] if len(rows) else None


def _with_row(replay: Replay, row: np.intp, values: dict) -> Replay:
  changed = {}
  for name, value in values.items():
    changed[name] = np.array(getattr(replay, name))
    changed[name][row] = value
  return replay._replace(**changed)
