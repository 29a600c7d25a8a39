import random

import pytest

from promptrl_jax.feedback.aggregate import (
  PromptScore,
  Weights,
  aggregate,
  by_prompt,
  edit_distance,
)
from tests.feedback.build import (
  answer,
  correct,
  pair,
  prefer,
  rate,
  signal,
  skip,
  undo,
)


def test_kinds_are_weighted_and_events_of_a_kind_averaged():
  a, _ = pair()
  events = [
    rate('1', 'a', 1, 'thumbs'),  # 1
    rate('2', 'a', 4),  # 0.75: explicit 0.875
    prefer('3', 'b'),  # 0
    signal('4', 'a', 1, 'copied'),  # 1
    correct('5', 'a', 'abcx'),  # a quarter was edited, 0.75: implicit 0.875
  ]
  # (1.0 * 0.875 + 0.9 * 0 + 0.5 * 0.875) / 2.4
  assert aggregate(a, events) == pytest.approx(1.3125 / 2.4)
  # (2 * 0.875 + 1 * 0.875) / 3
  weights = Weights(explicit=2, preference=0, implicit=1)
  assert aggregate(a, events, weights) == pytest.approx(2.625 / 3)


def test_how_long_an_answer_was_read_counts_if_nothing_else_was_done():
  a, _ = pair()
  reading = signal('1', 'a', 15, 'reading_time')
  assert aggregate(a, [reading]) == 0.5
  assert aggregate(a, [reading, signal('2', 'a', 1, 'asked_again')]) == 0
  assert aggregate(a, [reading, correct('3', 'a', 'abcx')]) == 0.75
  # A rating is said, not done: (1.0 * 0.75 + 0.5 * 0.5) / 1.5
  assert aggregate(a, [reading, rate('4', 'a', 4)]) == pytest.approx(1 / 1.5)


def test_choosing_b_lowers_a():
  a, b = pair()
  rating = rate('1', 'a', 4)
  before = aggregate(a, [rating])
  # (0.75 + 0.9 * 0) / 1.9
  assert aggregate(a, [rating, prefer('2', 'b')]) == pytest.approx(0.75 / 1.9)
  assert before == 0.75
  for value, worth in (('a', 1.0), ('b', 0.0), ('tie', 0.5)):
    assert aggregate(a, [prefer('2', value)]) == worth
    assert aggregate(b, [prefer('2', value)]) == 1 - worth


def test_nothing_that_counts_is_no_score():
  a, b = pair()
  assert aggregate(a, []) is None
  assert aggregate(a, [skip('1', 'a'), rate('2', 'b', 5)]) is None
  undone = [prefer('1', 'a'), undo('2', 'a', '1')]
  assert aggregate(a, undone) is None and aggregate(b, undone) is None
  only_choices = Weights(explicit=0, implicit=0)
  assert aggregate(a, [rate('1', 'a', 5)], only_choices) is None


@pytest.mark.parametrize('value', [-0.1, float('nan'), float('inf')])
def test_weights_are_finite_and_not_negative(value):
  with pytest.raises(ValueError, match=f'implicit={value}'):
    Weights(implicit=value)


def test_events_count_for_the_prompt_that_answered():
  responses = [
    answer('old', prompt_id='p', version=1),
    answer('new', prompt_id='p', version=2),
    answer('newer', prompt_id='p', version=2),
    answer('unrated', prompt_id='r'),
    *pair(),
  ]
  events = [
    rate('1', 'new', 5),
    rate('2', 'newer', 3),
    rate('3', 'old', 1),  # late: version 2 is in use
    prefer('4', 'b'),
    prefer('5', 'a'),
    undo('6', 'a', '5'),
  ]
  assert by_prompt(responses, events) == {
    ('p', 1): PromptScore(0.0, 1),
    ('p', 2): PromptScore(0.75, 2),
    ('p', 0): PromptScore(0.0, 1),
    ('other', 0): PromptScore(1.0, 1),
  }


def levenshtein(a, b):
  """The table of the definition, row by row."""
  row = list(range(len(b) + 1))
  for i, x in enumerate(a, 1):
    last, row[0] = row[0], i
    for j, y in enumerate(b, 1):
      last, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, last + (x != y))
  return row[-1]


def test_edits_are_those_of_the_definition():
  assert edit_distance('kitten', 'sitting') == 3 / 7
  assert edit_distance('', '') == 0 and edit_distance('', 'ab') == 1
  draw = random.Random(0)
  for _ in range(300):
    a, b = (
      ''.join(draw.choices('abc', k=draw.randrange(1, 90))) for _ in range(2)
    )
    assert edit_distance(a, b) == levenshtein(a, b) / max(len(a), len(b))
