"""Requests for other words: which need what, and how a reply is read."""

import pytest

from promptrl_jax.prompts import wording
from promptrl_jax.prompts.wording import WordingPrompt


@pytest.mark.parametrize('operator', wording.INSTRUCTIONS)
def test_the_worked_example_of_each_request_can_be_read(operator):
  other = 'Add 1.' if operator in wording.CROSSING else ''
  hint = 'Say which type.' if operator in wording.GUIDED else ''
  prompt = WordingPrompt(operator, 'Add one.', 'def f(x):', other, 40, hint)
  system, _, (role, answer), (_, question) = wording.write_request(prompt)
  assert role == 'assistant' and wording.read(answer)
  assert 'at most 40 words' in system[1] and 'Add one.' in question
  assert other in question and hint in question


@pytest.mark.parametrize(
  ('operator', 'other', 'message'),
  [
    ('merge', '', "operator 'merge': expected one of elaborate, mutate"),
    ('cross', '', 'a second description'),
    ('mutate', 'Add 1.', 'a second description'),
    ('cross_sections', '', 'a second description'),
    ('guide_section', '', 'a hint is for guide_section'),
  ],
)
def test_a_request_that_cannot_be_asked_is_refused(operator, other, message):
  with pytest.raises(ValueError, match=message):
    WordingPrompt(operator, 'Add one.', 'def f(x):', other)
