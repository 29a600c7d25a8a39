"""Reflections: the request, the reply, and which ones are recalled."""

import pytest

from promptrl_jax.prompts import reflection
from promptrl_jax.prompts.reflection import Reflection, ReflectionPrompt

PROMPT = ReflectionPrompt('Add one.', 'def f(x):', 'def f(x):\n  return x')


def test_the_request_shows_program_and_results():
  *_, (role, content) = reflection.write_request(PROMPT)
  assert role == 'user' and 'def f(x):\n  return x' in content
  assert 'Test results' not in content
  tested = ReflectionPrompt('Add one.', 'def f(x):', '', 'FAILED: f(1)')
  content = reflection.write_request(tested)[-1][1]
  assert 'FAILED: f(1)' in content and 'no program' in content


@pytest.mark.parametrize(
  ('reply', 'text'),
  [
    ('It returns x.\nAdd one to it. ', 'It returns x. Add one to it.'),
    ('It must add.\n```python\ndef f(x): return x + 1\n```', 'It must add.'),
    ('It must add.\n```python\ndef f(x):', 'It must add.'),
    ('def f(x):\nreturn more', 'return more'),
    ('```python\ndef f(x):\n  return x\n```', ''),
    ('  \n', ''),
    ('Add. Add. Sort it. Add. Mind 2.5! And more.', 'Add. Sort it. Mind 2.5!'),
    ('It adds one.\n\nThe function adds', 'It adds one.'),
    ('it adds one too', 'it adds one too'),
  ],
)
def test_words_are_kept_and_code_is_not(reply, text):
  assert reflection.read(reply) == text


def recall(memory, situation, count=9, tokens=99):
  return reflection.recall(
    memory,
    situation,
    count=count,
    tokens=tokens,
    count_tokens=lambda text: len(text.split()),
  )


MEMORY = (
  Reflection('sum of digits ends early', 'Go through all digits.'),
  Reflection('vowels of a word are missing', 'Count y as well.'),
  Reflection('sum of digits of zero', 'Zero has one digit.'),
)


def test_the_nearest_come_first_and_of_equals_the_latest():
  assert recall(MEMORY, 'some vowels are missing', 1) == ('Count y as well.',)
  same = [Reflection('same', text) for text in ('old', 'newer', 'newest')]
  assert recall(same, 'same') == ('newest', 'newer', 'old')
  assert recall((), 'anything') == () and recall(MEMORY, 'sum', 0) == ()


def test_what_is_over_the_cap_is_left_out_and_shorter_ones_are_not():
  # Each has four words.
  assert len(recall(MEMORY, 'sum of digits', tokens=8)) == 2
  assert len(recall(MEMORY, 'sum of digits', tokens=11)) == 2
  long = Reflection('sum of digits', 'word ' * 50)
  assert recall((*MEMORY, long), 'sum of digits', tokens=4) in [
    (m.text,) for m in MEMORY
  ]


def test_a_reflection_that_repeats_is_remembered_once():
  twice = (MEMORY[0], MEMORY[1], MEMORY[0])
  assert sorted(recall(twice, 'digits')) == sorted(m.text for m in MEMORY[:2])
