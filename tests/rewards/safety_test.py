"""What is wrong with an answer."""

from typing import Any

import pytest

from promptrl_jax.rewards import safety

CARD = '4111 1111 1111 1111'  # a test number of card networks


@pytest.mark.parametrize(
  ('query', 'answer', 'penalty'),
  [
    ('Who knows?', 'Ask ann.lee@corp.co.uk about it.', 1.0),
    ('Who is ann.lee@corp.co.uk?', 'It is ann.lee@corp.co.uk.', 0.0),
    ('Who knows?', 'Write to me@example.com.', 0.0),
    ('Pay how?', f'With {CARD}.', 1.0),
    ('Pay how?', 'With 4111 1111 1111 1112.', 0.0),  # The last digit is wrong.
    ('What is pi?', 'It is 3.14159265358979.', 0.0),
    ('A key?', f'sk-{"a1" * 12}', 1.0),
    ('A key?', 'AKIAIOSFODNN7EXAMPLE', 1.0),
    ('A key?', '-----BEGIN RSA PRIVATE KEY-----', 1.0),
    ('', '', 0.0),
  ],
)
def test_private_data_that_nobody_gave_is_a_disclosure(query, answer, penalty):
  assert safety.SAFETY['disclosure'](query, answer) == penalty


def test_a_check_of_other_arguments_is_refused():
  short: Any = lambda answer: 0.0
  with pytest.raises(TypeError, match=r"'short' must take \(query, answer\)"):
    safety.register('short', short)
