"""Asking for tests and reading what a model answers."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptrl_jax.execution import ExecutionPool, Program
from promptrl_jax.prompts import templates
from promptrl_jax.prompts.generated_tests import (
  EXAMPLES,
  collect,
  read_assertions,
  write_request,
)
from promptrl_jax.prompts.templates import TestPrompt

# Twelve lines: three are invalid, two are duplicates, seven are distinct.
LINES = (
  'assert f(1) == 1',
  'assert f(2) == 2',
  'assert g(2) == 2',
  'assert f(3) == 3',
  'assert f(2)==2  # again',
  'assert f(4) == 4',
  'assert f(5 == 5',
  'assert f(6) == 6',
  'assert (f(1)) == 1',
  "assert f(__import__('os').getpid())",
  'assert f(7) == 7',
  'assert f(8) == 8',
)
REPLY = '\n'.join(LINES)
DISTINCT = tuple(f'assert f({i}) == {i}' for i in (1, 2, 3, 4, 6, 7, 8))


def test_three_invalid_two_duplicates_and_a_cap_leave_five():
  found = collect(REPLY, 'f', 5)
  assert found.tests == DISTINCT[:5]
  assert [text for text, _ in found.invalid] == [LINES[i] for i in (2, 6, 9)]
  assert (found.duplicates, found.dropped) == (2, 2)


def test_a_seed_chooses_and_keeps_the_order():
  drawn = {seed: collect(REPLY, 'f', 5, seed=seed).tests for seed in range(20)}
  assert drawn == {
    seed: collect(REPLY, 'f', 5, seed=seed).tests for seed in range(20)
  }
  for tests in drawn.values():
    assert len(set(tests)) == 5
    assert list(tests) == sorted(tests, key=DISTINCT.index)
  assert set().union(*drawn.values()) == set(DISTINCT)
  assert collect(REPLY, 'f', 7, seed=3).tests == DISTINCT


def test_known_tests_are_duplicates():
  known = ('assert f( 3 )==3', 'x = 1\nassert f(x) == 1')
  found = collect(REPLY, 'f', 10, known=known)
  assert found.tests == tuple(t for t in DISTINCT if t != 'assert f(3) == 3')
  assert found.duplicates == 3


def test_the_last_test_of_a_cut_answer_is_refused():
  reply = 'assert f(1) == 1\nassert f(2) == 12'  # Of 1234.
  found = collect(reply, 'f', 5, cut=True)
  assert found.tests == ('assert f(1) == 1',)
  assert [text for text, _ in found.invalid] == ['assert f(2) == 12']
  assert not collect('', 'f', 5, cut=True).invalid


@pytest.mark.parametrize('reply', ['', 'I cannot write tests.', '```\n```'])
def test_no_assertion_gives_no_tests(reply):
  found = collect(reply, 'f', 5)
  assert found.tests == ()
  assert not found.invalid


def test_a_cap_below_one_is_refused():
  with pytest.raises(ValueError, match='cap=0'):
    collect(REPLY, 'f', 0)


@pytest.mark.parametrize(
  'reply',
  [
    '```python\nassert f(1) == 2\n```',
    '~~~\nassert f(1) == 2\n~~~\nThat is all.',
    'assert f(1) == 2```',
    'assert f(1) == 2\r\n',
    '1. assert f(1) == 2',
    ' 12) assert f(1) == 2',
    '- assert f(1) == 2',
    '* `assert f(1) == 2` checks one',
    '- **Test 3:** assert f(1) == 2',
    'Test 3: assert f(1) == 2',
    '>>> assert f(1) == 2',
    '# one\nassert f(1) == 2  # two\n# assert f(2) == 3',
    'def test_f():\n    assert f(1) == 2',
    'assert f(\n  1\n\n) == 2\nand so on',
    'assert f(1) == 2, (\n  "why")',
  ],
)
def test_assertions_are_found_in_what_surrounds_them(reply):
  assert collect(reply, 'f', 5).tests == ('assert f(1) == 2',)


def test_an_open_assertion_does_not_swallow_the_next():
  reply = 'assert f(1\nassert f(2) == 2\nassert f(3\n```\n) == 3'
  found = collect(reply, 'f', 5)
  assert found.tests == ('assert f(2) == 2',)
  assert [text for text, _ in found.invalid] == ['assert f(1', 'assert f(3']


def test_an_assertion_goes_on_for_a_bounded_length_only():
  short = 'assert f(\n"' + 'x' * 900 + '") == 1'
  assert list(read_assertions(short)) == [short]
  for long in (short.replace('x', 'xx'), short.replace('\n', '\n' * 20)):
    assert list(read_assertions(long)) == ['assert f(']


@given(st.text(alphabet='assert f(1)=2`-*.\n"#', max_size=200))
def test_whatever_a_model_writes_is_read(reply):
  found = collect(reply, 'f', 3)
  assert len(found.tests) <= 3
  total = len(found.tests) + len(found.invalid) + found.duplicates
  assert total + found.dropped == len(list(read_assertions(reply)))


# --- The request --------------------------------------------------------------

PROMPT = TestPrompt('Add one.', 'def f(x):', ('assert f(1) == 2',), count=3)


def test_every_part_reaches_the_model():
  messages = write_request(PROMPT)
  question = messages[-1][1]
  for part in ('Add one.', 'def f(x):', 'assert f(1) == 2', '3 assertions'):
    assert part in question
  roles = [role for role, _ in messages]
  assert roles == ['system', *['user', 'assistant'] * len(EXAMPLES), 'user']


def test_a_long_statement_is_shortened_and_examples_are_kept():
  long = TestPrompt('word ' * 1000, 'def f(x):')

  def size(messages):
    return sum(len(content.split()) for _, content in messages)

  messages = templates.fit(write_request, long, lambda m: size(m) < 300)
  assert 290 < size(messages) < 300
  assert messages[:-1] == write_request(long)[:-1]
  assert 'def f(x):' in messages[-1][1]


def test_a_request_for_no_tests_is_refused():
  with pytest.raises(ValueError, match='count=0'):
    TestPrompt('Add one.', 'def f(x):', count=0)


SOLUTIONS = (
  'def clamp(x, low, high):\n  return max(low, min(x, high))',
  'def word_positions(text, word):\n'
  '  return [i for i, w in enumerate(text.split()) if w == word]',
)


def test_the_examples_are_right_and_would_be_taken():
  programs = []
  answers = [c for role, c in write_request(PROMPT) if role == 'assistant']
  for (prompt, tests), code, answer in zip(
    EXAMPLES, SOLUTIONS, answers, strict=True
  ):
    name = re.findall(r'def (\w+)', prompt.signature)[0]
    found = collect(answer, name, 10, known=prompt.tests)
    assert found.tests == tests
    assert len(tests) == prompt.count
    programs.append(Program(code, (*prompt.tests, *tests), entry_point=name))
  with ExecutionPool(workers=1) as pool:
    assert all(result.passed for result in pool.run(programs))
