import pytest

from promptrl_jax.feedback import scales
from promptrl_jax.feedback.errors import OutOfScale

# Scale, kind, raw value, worth: worked out by hand from the formulas of
# `scales`, and those of reading published with them.
TABLE = [
  ('thumbs', 'explicit', 1, 1.0),
  ('thumbs', 'explicit', False, 0.0),
  ('sign', 'explicit', 1, 1.0),
  ('sign', 'explicit', -1, 0.0),
  ('rating_1_5', 'explicit', 4, 0.75),
  ('rating_1_10', 'explicit', 1, 0.0),
  ('rating_1_10', 'explicit', 7, 2 / 3),
  ('reading_time', 'implicit', -1, 0.0),
  ('reading_time', 'implicit', 15, 0.5),
  ('reading_time', 'implicit', 30, 1.0),
  ('reading_time', 'implicit', 60, 0.5),
  ('reading_time', 'implicit', 90, 0.0),
  ('reading_time', 'implicit', 3600, 0.0),
  ('copied', 'implicit', 1, 1.0),
  ('asked_again', 'implicit', 1, 0.0),
  ('edit_distance', 'implicit', 0.25, 0.75),
  ('ab', 'preference', 'a', 1.0),
  ('ab', 'preference', 'b', 0.0),
  ('ab', 'preference', 'tie', 0.5),
]


@pytest.mark.parametrize(('scale', 'kind', 'value', 'worth'), TABLE)
def test_raw_values_are_worth_what_the_table_says(scale, kind, value, worth):
  scales.check(scale, kind, value)
  assert scales.to_unit(scale, value) == pytest.approx(worth)


@pytest.mark.parametrize(
  ('scale', 'kind', 'value', 'expected'),
  [
    ('rating_1_5', 'explicit', 0, 'a number from 1 to 5'),
    ('rating_1_5', 'explicit', 5.01, 'a number from 1 to 5'),
    ('rating_1_10', 'explicit', '7', 'a number from 1 to 10'),
    ('rating_1_5', 'explicit', True, 'a number from 1 to 5'),
    ('rating_1_5', 'explicit', float('nan'), 'a number from 1 to 5'),
    ('thumbs', 'explicit', -1, 'one of 1, 0'),
    ('sign', 'explicit', 0, 'one of 1, -1'),
    ('reading_time', 'implicit', float('inf'), 'seconds'),
    ('edit_distance', 'implicit', 1.5, 'a number from 0 to 1'),
    ('ab', 'preference', 'left', 'one of a, b, tie'),
    ('stars', 'explicit', 3, 'thumbs, sign, rating_1_5, rating_1_10'),
    ('reading_time', 'explicit', 3, 'thumbs, sign, rating_1_5, rating_1_10'),
  ],
)
def test_what_is_off_a_scale_is_named(scale, kind, value, expected):
  with pytest.raises(OutOfScale) as error:
    scales.check(scale, kind, value)
  message = str(error.value)
  assert expected in message and repr(scale).strip("'") in message
  assert '\n' not in message
