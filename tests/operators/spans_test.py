from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptrl_jax.operators.spans import protected_spans


def prose(text, names=()):
  """What is left of a text without its protected spans."""
  keep = [True] * len(text)
  for start, end in protected_spans(text, names):
    keep[start:end] = [False] * (end - start)
  return ''.join(c for c, k in zip(text, keep, strict=True) if k)


@pytest.mark.parametrize(
  ('text', 'left'),
  [
    ('a `list` b', 'a  b'),
    ('a\n```py\nlist\n```\nb', 'a\n\nb'),
    ('a\n```\nnever closed', 'a\n'),
    ('a "list" b', 'a  b'),
    ("a 'don't' b", 'a  b'),
    ("the user's list isn't", "the user's list isn't"),
    ("the lists' items' sum", "the lists' items' sum"),
    ('a [1, x] and {k} b', 'a  and  b'),
    ('see https://a.b/list now', 'see  now'),
    ('assert f(1) == 2\nlist', '\nlist'),
    ('Pass: assert f(1) == 2', 'Pass: '),
    ('x\n>>> f(1)\n[list]\n\nlist', 'x\n\n\n\nlist'),
    ('x:\n    total = 0\n    A list of words.', 'x:\n\n    A list of words.'),
    ('x\ndef f(list):\ny', 'x\n\ny'),
    ('for item in list:\nlist', '\nlist'),
    ('"a" `"` b "c"', '  b '),
    ('use f(list, g(x)) or g', 'use  or g'),
    ('a list (of words)', 'a list (of words)'),
  ],
)
def test_prose_is_what_is_left(text, left):
  assert prose(text) == left


def test_in_python_only_docstrings_are_prose():
  text = (
    '# list of words\ndef f(list):\n  """É: the list "xs".\n\n'
    '  >>> f([])\n  list\n  """\n  return list  # list\n'
  )
  assert prose(text) == 'É: the list .\n\n\n\n  '
  assert prose('def f(): "É é list"; return 1') == 'É é list'


def test_python_without_docstrings_has_no_prose():
  assert prose('def f(list):\n  return list\n') == ''


def test_names_are_protected_as_whole_words():
  assert prose('sum sums sum_list Sum', ['sum', '']) == ' sums sum_list Sum'


@given(st.text(alphabet='def f():\n\r\t "\'`[]>é.', max_size=60))
def test_any_text_gives_spans_inside_it(text):
  spans = protected_spans(text)
  assert spans == sorted(spans)
  assert all(0 <= start < end <= len(text) for start, end in spans)
