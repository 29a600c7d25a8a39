from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptrl_jax.prompts.extract import compiles, extract_code

F = 'def f(x):\n  return x + 1'
HELPER = 'import math\n\n\ndef g(x):\n  return math.sqrt(x)\n\n\n' + (
  'def f(x):\n  return g(x) + 1'
)

# (what the case is, the answer, the code that must come out)
FIXTURES = [
  ('raw', F, F),
  ('fence with tag', f'```python\n{F}\n```', F),
  ('fence with other spellings', f'~~~ Py\n{F}\n~~~', F),
  ('plain fence', f'```\n{F}\n```', F),
  ('fence of another language', f'```text\n{F}\n```', F),
  ('tags', f'[PYTHON]\n{F}\n[/PYTHON]', F),
  ('tags in lower case, unclosed', f'ok [python]\n{F}\n', F),
  ('MBPP few-shot tags', f'[BEGIN]\n{F}\n[DONE]\nMore [BEGIN]\n1\n[DONE]', F),
  ('prompt opened the MBPP tag', f'{F}\n[DONE]\n\nYou are an expert', F),
  ('prompt opened the fence', f'{F}\n```\nThis adds one.\n```python\nf(1)', F),
  ('prose around a fence', f'Sure!\n\n```python\n{F}\n```\nIt adds 1.', F),
  ('prose around raw code', f'The code from above:\n\n{F}\n\nIt adds 1.', F),
  ('fence without end', f'```python\n{F}\n', F),
  ('fence closed on the last line', f'```python\n{F}```', F),
  ('helper first', f'```python\n{HELPER}\n```', HELPER),
  ('helper first, raw, with prose', f'Here:\n{HELPER}\nDone. Bye.', HELPER),
  ('async', 'async def f(x):\n  return x\nHope it helps!', None),
  (
    'decorated',
    'Code:\nfrom functools import cache\n\n@cache\ndef f(x):\n  return x\n',
    'from functools import cache\n\n@cache\ndef f(x):\n  return x',
  ),
  ('class', 'class A:\n\n  def f(self):\n    return 1\n\nf = A().f', None),
  ('lambda', '```py\nf = lambda x: x + 1\n```', 'f = lambda x: x + 1'),
  ('constant before', f'MOD = 7\n\n{F}\nThe end is near', f'MOD = 7\n\n{F}'),
  ('cut in the middle of the next function', f'{F}\n\ndef t():\n  f(1', F),
  ('indented after the return', f'{F}\n  The function returns x', F),
  ('one word after', f'{F}\n\nExplanation\n\nIt adds one', F),
  ('nothing but words that parse after', f'{F}\n\nExplanation', F),
  (
    'block in a list item',
    '1. so:\n   ```python\n   def f(x):\n     return x\n   ```',
    'def f(x):\n  return x',
  ),
  ('one leading space', ' def f(x):\n   return x', 'def f(x):\n  return x'),
  ('leading space, first line only', f' {F}\nSo.', F),
  (
    'fence in a docstring',
    '```python\ndef f(x):\n  """Use:\n  ```\n  f(1)\n  ```\n  """\n'
    '  return x\n```',
    'def f(x):\n  """Use:\n  ```\n  f(1)\n  ```\n  """\n  return x',
  ),
  (
    'line separators inside a string',
    "def f(x):\n  return x.split('\u2028\x0c')\n\nIt splits.",
    "def f(x):\n  return x.split('\u2028\x0c')",
  ),
  ('invalid escape', "def f(x):\n  return '\\d'\nBye bye.", None),
  ('carriage returns', '```python\r\ndef f(x):\r\n  return x\r\n```', None),
  ('usage block first', f'```python\nf(1)\n```\n\n```python\n{F}\n```', F),
]


@pytest.mark.parametrize(
  ('text', 'code'), [c[1:] for c in FIXTURES], ids=[c[0] for c in FIXTURES]
)
@pytest.mark.parametrize('entry_point', [None, 'f'])
@pytest.mark.filterwarnings('ignore:invalid escape')
def test_code_is_found_compiles_and_defines_the_function(
  text, code, entry_point
):
  found = extract_code(text, entry_point)
  if code is not None:
    assert found == code
  namespace = {}
  exec(compile(found, '<answer>', 'exec'), namespace)
  assert 'f' in namespace


@pytest.mark.parametrize(
  'code',
  [
    'def f():\n  return [1]\n\nLAST = f()[0:1]',
    'def f():\n  return N',
    'def f():\n  return 1  # see /a/',
    'def f():\n  return "[/PYTHON"',
    'def f(xs):\n  return xs[0]',
    'def f():\n  PYTHON = {1: [2]}\n  return PYTHON[1]',
  ],
)
@pytest.mark.parametrize(
  'wrap',
  ['{}', '```python\n{}\n```', '[PYTHON]\n{}\n[/PYTHON]', '{}\n\nSo it.'],
)
def test_last_characters_survive(code, wrap):
  assert extract_code(wrap.replace('{}', code)) == code


def test_block_that_defines_the_entry_point_wins():
  text = '```python\ndef g():\n  pass\n```\n```\ndef f():\n  pass\n```'
  assert extract_code(text) == 'def g():\n  pass'
  assert extract_code(text, 'f') == 'def f():\n  pass'
  assert extract_code(text, 'h') == 'def g():\n  pass'


def test_raw_text_after_prose_that_looks_like_code_is_reached():
  text = 'from the list we take\nclass of its own\nx = so be it\n' + F
  assert extract_code(text, 'f') == F


@pytest.mark.parametrize(
  'text',
  [
    '',
    'I cannot do that.',
    'print(sorted([2, 1], key=lambda x: -x))',
    '```python\nprint(1)\n```',
    'def f(',
    'x = 1',
    '```',
  ],
)
def test_no_function_gives_the_empty_string(text):
  assert extract_code(text) == ''
  assert extract_code(text, 'f') == ''


def test_hostile_text_neither_raises_nor_hangs():
  for junk in ('-' * 10**5 + '1', 'x' + '.a' * 10**5, '(' * 10**5, '\0'):
    assert extract_code(f'{F}\ny = {junk}') == F
  start = time.monotonic()
  for line in ('def f(', 'x = [', 'x = 1', '```', 'x = 1\nreturn', '[PYTHON]'):
    assert extract_code((line + '\n') * 500 + '= =') == ''
  assert time.monotonic() - start < 6


def test_long_ramble_after_the_code_is_cut():
  assert extract_code(F + '\nAnd then it goes on.' * 500) == F


@given(st.text(alphabet='def f(x):\n \treturn`[]PYTHON/"\'#@=', max_size=120))
def test_any_text_gives_code_that_compiles_and_stands_in_it(text):
  code = extract_code(text)
  assert compiles(code)
  assert all(line.strip() in text for line in code.split('\n'))
