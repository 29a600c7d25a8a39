"""The replay: late feedback, what is replaced, and what is refused."""

import dataclasses

import numpy as np
import pytest

from promptrl_jax.training.gpro import replay as replay_lib
from promptrl_jax.training.gpro.config import GPROConfig

CONFIG = GPROConfig(features=2, candidates=3, capacity=4)
MASK = np.array([True, True, False])


def add(replay, value=0.0, **changes):
  row = {
    'features': np.full((3, 2), value),
    'mask': MASK,
    'logps': np.log([0.25, 0.75, 1e-30]),
    'scores': np.full(3, 0.5),
    'shown': 1,
  }
  return replay_lib.add(replay, **(row | changes))


def test_late_feedback_finds_its_row_and_is_fresh():
  replay = replay_lib.empty(CONFIG)
  for value in range(4):
    replay, serial = add(replay, value)
    assert serial == value
  before = replay
  replay, known = replay_lib.rate(replay, 1, 0.75, 'rating')
  replay, again = replay_lib.rate(replay, 0, 1.0, 'thumbs')
  assert known and again and replay.ratings == 2
  assert before.ratings == 0 and not before.kind.any()  # nothing is changed
  np.testing.assert_array_equal(replay.kind, [2, 1, 0, 0])
  np.testing.assert_array_equal(replay.reward, [1.0, 0.75, 0, 0])
  # The next queries replace those that were not heard of for longest.
  for value in (4, 5):
    replay, _ = add(replay, value)
  np.testing.assert_array_equal(sorted(replay.serial), [0, 1, 4, 5])
  replay, known = replay_lib.rate(replay, 2, 0.5, 'rating')
  assert not known and replay.ratings == 2
  # A second opinion replaces the first.
  replay, known = replay_lib.rate(replay, 1, 0.25, 'rating')
  assert known and replay.reward[replay.serial == 1] == 0.25
  np.testing.assert_array_equal(
    replay.features[replay.serial == 5], [[[5, 5], [5, 5], [0, 0]]]
  )


def test_feedback_that_is_withdrawn_leaves_a_row_that_can_be_rated():
  replay, serial = add(replay_lib.empty(CONFIG))
  assert not replay_lib.withdraw(replay, serial)[1]  # There is none yet.
  rated, _ = replay_lib.rate(replay, serial, 1.0, 'rating')
  replay, known = replay_lib.withdraw(rated, serial)
  assert known and not replay.kind.any() and not replay.reward.any()
  assert rated.kind.any()  # nothing is changed
  replay, known = replay_lib.rate(replay, serial, 0.5, 'thumbs')
  assert known and replay.reward[replay.serial == serial] == 0.5
  with pytest.raises(ValueError, match='serial=7'):
    replay_lib.withdraw(replay, 7)


def test_candidates_that_are_missing_are_masked_out():
  features, mask = replay_lib.pad(np.ones((2, 2)), 3)
  np.testing.assert_array_equal(features, [[1, 1], [1, 1], [0, 0]])
  np.testing.assert_array_equal(mask, MASK)
  for count in (0, 4):
    with pytest.raises(ValueError, match=f'{count} candidates: expected 1 to'):
      replay_lib.pad(np.ones((count, 2)), 3)


def test_what_cannot_be_is_refused():
  replay, serial = add(replay_lib.empty(CONFIG), other=0)
  rate = lambda *args: replay_lib.rate(replay, *args)
  assert rate(serial, 0.5, 'pair')[1]
  for arguments, message in [
    ((serial, 1.5, 'rating'), r'reward=1.5: expected a number in \[0, 1\]'),
    ((serial, float('nan'), 'rating'), 'reward=nan'),
    ((serial, 1.0, 'stars'), "kind='stars': expected one of rating, thumbs"),
    ((7, 1.0, 'rating'), 'serial=7: expected the number of one of 1 queries'),
    ((-1, 1.0, 'rating'), 'serial=-1'),
  ]:
    with pytest.raises(ValueError, match=message):
      rate(*arguments)
  for changes, message in [
    ({'shown': 2}, 'shown=2: expected the index of a valid candidate'),
    ({'shown': 3}, 'shown=3'),
    ({'features': np.full((3, 2), np.nan)}, 'must be finite'),
    ({'features': np.zeros((2, 2))}, r'expected \(3, 2\)'),
  ]:
    with pytest.raises(ValueError, match=message):
      add(replay, **changes)
  alone, serial = add(replay, other=1)
  with pytest.raises(ValueError, match='showed no pair'):
    replay_lib.rate(alone, serial, 1.0, 'pair')


@pytest.mark.parametrize(
  ('changes', 'message'),
  [
    ({'members': 0}, 'members=0: expected at least 1'),
    ({'advantage': 'none'}, 'advantage=.*expected one of candidates, shown'),
    ({'anchor': 'none'}, 'anchor=.*expected one of ema, frozen'),
    ({'half_life': 0.0}, 'half_life=0.0'),
    ({'max_weight': 0.5}, 'max_weight=0.5'),
    ({'uniform': 1.5}, 'uniform=1.5'),
    ({'temperatures': (-1.0,)}, 'temperatures='),
  ],
)
def test_settings_that_cannot_be_are_refused(changes, message):
  with pytest.raises(ValueError, match=message):
    dataclasses.replace(CONFIG, **changes)
