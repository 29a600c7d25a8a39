from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from promptrl_jax.prompts.rewrite import (
  PREFIX,
  extract_rewrite,
  repair_rewrite,
  validate_rewrite,
)

GOOD = 'Rewritten task: Write a Python function f that adds 1 to x.'


@pytest.mark.parametrize(
  ('text', 'rewrite'),
  [
    (GOOD, 'Write a Python function f that adds 1 to x.'),
    ('Sure! rewritten TASK:   Use f  on it. And more.', 'Use f on it.'),
    (f'{PREFIX} Use f. {PREFIX} Use g.', 'Use f.'),
    (f'{PREFIX} Use f on it\nExplanation: it works', 'Use f on it'),
    (
      f'{PREFIX}\n\nUse f, e.g. on 2.5, here. More.',
      'Use f, e.g. on 2.5, here.',
    ),
    (f'{PREFIX} Call math.sqrt in f!', 'Call math.sqrt in f!'),
    ('No prefix.\n Two  lines.', 'No prefix. Two lines.'),
    (PREFIX, ''),
  ],
)
def test_rewrite_is_the_first_sentence_after_the_first_prefix(text, rewrite):
  assert extract_rewrite(text) == rewrite


@pytest.mark.parametrize(
  ('text', 'errors'),
  [
    (GOOD, []),
    ('Write a Python function f.', ['prefix missing']),
    (f'{GOOD} {GOOD}', ['prefix occurs 2 times', 'more than one sentence']),
    (PREFIX, ['empty body', 'function name f missing']),
    (f'{GOOD} It is easy.', ['more than one sentence']),
    (f'{PREFIX} The Python function f\nadds.', ['more than one sentence']),
    (
      f'{PREFIX} Python function `f`: def f(x): x; y.',
      ['code marker def', 'code marker ;'],
    ),
    (
      f'{PREFIX} Python function f {{ from m import x }}.',
      ['code marker import', 'code marker {}'],
    ),
    (f'{PREFIX} A Python function foo that adds.', ['function name f missing']),
    (f'{PREFIX} A routine f that adds.', []),
    (
      f'{PREFIX} A python function f, i.e. one that removes the class of 2.5 '
      'from a list?',
      [],
    ),
  ],
)
def test_each_rule_reports_its_own_error(text, errors):
  assert validate_rewrite(text, 'f') == errors


@pytest.mark.parametrize(
  'task',
  [
    'Write a function to remove items from a list.',
    'First sort. Then, e.g. for [1, 2], return 2.5! Why?',
    '```python\ndef f(x): pass\n```\nclass A: import os; from a import b',
    '',
    '...',
    f'{PREFIX} again',
    'de```f g(x)',
    'Rewritten ``` task: Rewritten task: task:',
  ],
)
def test_repair_passes_validation(task):
  repaired = repair_rewrite('f', task)
  assert validate_rewrite(repaired, 'f') == []
  assert 'Python function' in repaired


def test_repair_keeps_the_words_of_the_task():
  repaired = extract_rewrite(repair_rewrite('f', 'Sort a list.  Return it.'))
  assert repaired == (
    'Write a Python function named f for the following task: Sort a list, '
    'Return it.'
  )


FRAGMENTS = [
  'def ',
  'class ',
  'import ',
  'from ',
  '#include',
  ';',
  '{',
  '}',
  '```',
  '[PYTHON]',
  '. ',
  '!',
  '\n',
  PREFIX,
  'Rewritten ',
  'task:',
  'a',
  'g(x)',
  ':',
  ' ',
]


@example('#includeRewritten task:')
@example('Rewritten ```task: a')
@given(st.lists(st.sampled_from(FRAGMENTS), max_size=12).map(''.join))
def test_repair_passes_validation_for_any_task(task):
  assert validate_rewrite(repair_rewrite('f', task), 'f') == []
  again = repair_rewrite('f', extract_rewrite(repair_rewrite('f', task)))
  assert again == repair_rewrite('f', task)
