"""What a question asks for."""

import numpy as np
import pytest

from promptrl_jax.rewards import intent


@pytest.mark.parametrize(
  ('question', 'asks_for'),
  [
    ('How can I patch a bicycle tube?', {'procedure'}),
    ('I want to move to Lisbon. Where do I begin?', {'procedure'}),
    ('How to cook rice, and should I rinse it?', {'procedure', 'judgement'}),
    ('Why do leaves turn red?', {'explanation'}),
    ('How does a heat pump work?', {'explanation'}),
    ('Tell me about the Hanseatic League.', {'explanation'}),
    ('Is tea healthier than coffee?', {'verification'}),
    ('Which is faster, a train or a plane?', {'comparison'}),
    (
      'What is the difference between a fugue and a canon?',
      {'explanation', 'comparison'},
    ),
    ('Should I lease a car?', {'judgement', 'verification'}),
    ('what do you think of brutalism', {'judgement'}),
    ('Please write a haiku about rain.', {'request'}),
    ('I need a checklist for a picnic.', {'request'}),
    ('   ', set()),
    ('Rain.', set()),
  ],
)
def test_words_show_what_is_asked_for(question, asks_for):
  (row,) = intent.features([question])
  found = {n for n, mark in zip(intent.CATEGORIES, row, strict=True) if mark}
  assert found == asks_for


def test_no_question_has_a_row_of_no_length():
  rows = intent.features([])
  assert rows.shape == (0, len(intent.CATEGORIES))
  assert rows.dtype == np.float32
