"""How requests are written, shortened and read."""

import dataclasses
import re

import pytest

from promptrl_jax.prompts import templates
from promptrl_jax.prompts.examples import WorkedExample
from promptrl_jax.prompts.rewrite import PREFIX, validate_rewrite
from promptrl_jax.prompts.templates import (
  BASE,
  CHAT,
  CODE,
  PLAIN,
  TEMPLATES,
  CoderPrompt,
  RewritePrompt,
)

FEEDBACK = 'TEST_PASS_MASK: (False,)\nFAILED: f(1) returned 2, expected 3'
CODER = CoderPrompt(
  'Add two.',
  'def f(x):',
  ('assert f(1) == 3',),
  'def f(x):\n  return 2',
  FEEDBACK,
)
REWRITE = RewritePrompt('Add two.', 'f', FEEDBACK)


def text(messages):
  return '\n'.join(content for _, content in messages)


@pytest.mark.parametrize('template', TEMPLATES.values(), ids=lambda t: t.name)
def test_every_part_reaches_the_model(template):
  prompt = text(template.coder(CODER))
  for part in (
    'Add two.',
    'def f(x):',
    'assert f(1) == 3',
    'return 2',
    'expected 3',
  ):
    assert part in prompt
  prompt = text(template.rewriter(REWRITE))
  for part in ('Add two.', 'f', 'expected 3'):
    assert part in prompt


@pytest.mark.parametrize('template', TEMPLATES.values(), ids=lambda t: t.name)
def test_notes_are_shown_and_left_out_before_words_are(template):
  notes = ('Look at negative numbers.', 'Mind the empty list.')
  prompt = dataclasses.replace(CODER, notes=notes)
  shown = text(template.coder(prompt))
  assert all(note in shown for note in notes)

  def fits(messages):
    return notes[1] not in text(messages)

  fitted = text(templates.fit(template.coder, prompt, fits))
  assert notes[0] in fitted and 'Add two.' in fitted


def test_plain_replies_go_on_after_the_signature():
  assert PLAIN.program(CODER, '\n  return x') == 'def f(x):\n  return x'


def test_chat_replies_are_searched_for_code():
  reply = 'Sure!\n```python\ndef f(x):\n  return x\n```\nDone.'
  assert CHAT.program(CODER, reply) == 'def f(x):\n  return x'


def test_a_useless_rewrite_keeps_the_words_of_the_statement():
  assert PLAIN.rewritten(REWRITE, '') == 'Add two.'
  repaired = CHAT.rewritten(REWRITE, 'I cannot do that.')
  assert repaired.endswith('f for the following task: Add two.')
  once_more = dataclasses.replace(REWRITE, statement=repaired)
  assert CHAT.rewritten(once_more, '') == repaired


def test_a_chat_rewrite_is_taken_without_its_prefix():
  reply = 'Rewritten task: Write a Python function f that adds two to x.'
  expected = 'Write a Python function f that adds two to x.'
  assert CHAT.rewritten(REWRITE, reply) == expected


def test_chat_roles_are_roles():
  assert [role for role, _ in CHAT.coder(CODER)] == ['system', 'user']


def test_fitting_drops_words_from_the_left_of_the_statement_only():
  prompt = CoderPrompt(
    ' '.join(f'w{i}' for i in range(50)), 'def f(x):', ('T',)
  )
  sizes = []

  def fits(messages):
    sizes.append(len(text(messages).split()))
    return sizes[-1] <= 25

  fitted = text(templates.fit(PLAIN.coder, prompt, fits))
  assert len(fitted.split()) == 25
  assert 'w49' in fitted and 'def f(x):' in fitted and 'T' in fitted
  assert fitted.startswith('w')
  assert len(sizes) < 12  # bisection


def test_what_fits_is_left_alone():
  messages = templates.fit(PLAIN.coder, CODER, lambda _: True)
  assert messages == PLAIN.coder(CODER)


def test_too_long_without_the_statement_is_an_error():
  with pytest.raises(
    templates.PromptTooLongError, match='without its statement'
  ):
    templates.fit(PLAIN.coder, CODER, lambda _: False)


def test_code_is_asked_for_as_the_rest_of_a_file():
  example = WorkedExample(
    '7',
    'Roots.\nOf a number.',
    'def g(x):',
    ('assert g(4) == 2',),
    'import math\ndef g(x):\n  return math.sqrt(x)',
  )
  prompt = dataclasses.replace(CODER, examples=(example,), instruction='Solve.')
  ((role, content),) = CODE.coder(prompt)
  assert role == 'text'
  assert (
    content
    == """# Solve.

# Roots.
# Of a number.
# assert g(4) == 2
import math
def g(x):
  return math.sqrt(x)


# Add two.
# assert f(1) == 3
# This attempt is wrong:
# def f(x):
#   return 2
# TEST_PASS_MASK: (False,)
# FAILED: f(1) returned 2, expected 3
# A correct program:
def f(x):"""
  )


@pytest.mark.parametrize('template', (CHAT, CODE), ids=lambda t: t.name)
def test_an_attempt_without_feedback_leaves_no_empty_line(template):
  # A model that continues a file answers an empty comment with another one.
  said = FEEDBACK.split('\n')
  lines = text(template.coder(CODER)).split('\n')
  kept = [line for line in lines if line.removeprefix('# ') not in said]
  assert len(kept) == len(lines) - len(said)
  without = dataclasses.replace(CODER, feedback='')
  assert text(template.coder(without)).split('\n') == kept


def test_a_program_may_use_what_its_file_imports():
  example = WorkedExample(
    '7', 'Roots.', 'def g(x):', (), 'import math\nfrom re import sub\nx = 1'
  )
  prompt = dataclasses.replace(CODER, examples=(example, example))
  assert CODE.program(prompt, '\n  return x + 2') == (
    'import math\nfrom re import sub\ndef f(x):\n  return x + 2'
  )
  assert CODE.program(prompt, '\n  return (') == ''


def test_a_program_in_a_file_ends_where_other_code_begins():
  assert '\ndef ' in CODE.stop and not CHAT.stop


def test_a_model_that_continues_a_file_is_shown_what_a_rewrite_is():
  system, *shown, asked = CODE.rewriter(REWRITE)
  assert (system, asked) == CHAT.rewriter(REWRITE)
  assert [role for role, _ in shown] == ['user', 'assistant'] * 2
  for (_, question), (_, answer) in zip(shown[::2], shown[1::2], strict=True):
    (name,) = re.findall('Function name: (.+)', question)
    assert not validate_rewrite(answer, name)
    written = CODE.rewritten(RewritePrompt('', name), answer)
    assert f'{PREFIX} {written}' == answer


def test_a_base_model_goes_on_with_the_line_of_the_rewrite():
  ((role, content),) = BASE.rewriter(REWRITE)
  assert role == 'text'
  *shown, asked = content.split('\n\n')
  feedback = ' '.join(FEEDBACK.split())
  assert asked == (
    'Task: Add two.\nFunction name: f\n'
    f'Feedback on the last program: {feedback}\n{PREFIX}'
  )
  for example in shown:
    (name,) = re.findall('Function name: (.+)', example)
    answer = example.rpartition('\n')[2]
    assert not validate_rewrite(answer, name)
    reply = answer.removeprefix(PREFIX)
    written = BASE.rewritten(RewritePrompt('', name), reply)
    assert f'{PREFIX} {written}' == answer


@pytest.mark.parametrize(
  ('reply', 'read'),
  [
    (' Write a Python function f.\n', 'Write a Python function f.'),
    (' Write a Python function f.\nTask: g', 'Write a Python function f.'),
    ('\n', ''),
    (' Write a Python function.\n', ''),  # without its name
    (' Write f. Write g.\n', ''),
    (' def f(x):\n', ''),
  ],
)
def test_a_base_model_is_read_up_to_the_end_of_the_line(reply, read):
  assert BASE.read_rewrite(REWRITE, reply) == read


def test_programs_of_base_models_are_those_of_code_models():
  assert BASE.coder(CODER) == CODE.coder(CODER) and BASE.stop == CODE.stop
  assert not BASE.instructed and BASE.rewrite_stop == ('\n',)


def test_a_signature_may_stand_below_what_the_program_needs():
  above = 'import math\n\ndef helper(x):\n    return x\n\n\n'
  prompt = CoderPrompt('Take the root.', f'{above}def root(n: int):')
  assert prompt.function_name == 'root'
  body = '\n    return helper(math.sqrt(n))\n'
  for template in (PLAIN, CODE):
    ((_, text),) = template.coder(prompt)
    assert text.endswith(prompt.signature)
    assert template.program(prompt, body).strip() == (
      f'{prompt.signature}{body}'.strip()
    )
  reply = f'```python\n{prompt.signature}{body}```'
  assert CHAT.program(prompt, reply) == f'{prompt.signature}{body}'.strip()
