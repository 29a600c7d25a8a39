from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptrl_jax.prompts.feedback import (
  CUT_MARKER,
  feedback_text,
  summarize_feedback,
)


@dataclasses.dataclass(frozen=True)
class Seen:
  status: str
  error_type: str | None = None
  message: str = ''


def test_second_of_three_fails_gives_mask_and_one_line_with_values():
  wrong = Seen('failed', 'AssertionError', 'f(2) expected 5, got 4')
  text = feedback_text([Seen('passed'), wrong, Seen('passed')])
  assert text == (
    'TEST_PASS_MASK: (True, False, True)\nFAILED: f(2) expected 5, got 4'
  )


def test_only_raised_exceptions_mention_an_error():
  wrong = Seen('failed', 'AssertionError', 'f(2) expected 5, got 4')
  raised = Seen('error', 'ZeroDivisionError', 'division by zero')
  assert 'error' not in feedback_text([wrong]).lower()
  assert 'FAILED: ZeroDivisionError: division by zero' in feedback_text(
    [raised]
  )


@pytest.mark.parametrize(
  ('verdict', 'line'),
  [
    (Seen('timeout'), 'FAILED: timeout'),
    (Seen('not_run'), 'FAILED: not_run'),
    (Seen('failed', 'AssertionError'), 'FAILED: AssertionError'),
    (Seen('error', 'KeyError', 'KeyError: 1'), 'FAILED: KeyError: 1'),
    (Seen('failed', None, 'f(1)\n  expected 2'), 'FAILED: f(1) expected 2'),
  ],
)
def test_every_status_has_one_line(verdict, line):
  assert feedback_text([verdict]).split('\n')[1:] == [line]


def test_all_passed_has_no_failure_lines():
  assert feedback_text([Seen('passed')]) == 'TEST_PASS_MASK: (True,)'


def test_long_message_of_a_program_is_cut():
  line = feedback_text([Seen('error', 'E', 'x' * 999)]).split('\n')[1]
  assert line == 'FAILED: E: ' + 'x' * 200 + CUT_MARKER


@pytest.mark.parametrize(
  'code',
  [
    '```python\nsecret = 1\n```',
    '[PYTHON]\nsecret = 1\n[/PYTHON]',
    '<code>secret = 1</code>',
    '~~~\nsecret = 1\n~~~',
  ],
)
def test_summary_has_no_code_and_keeps_the_limit(code):
  text = 'before ' + code + ' ' + 'word ' * 120
  summary = summarize_feedback(text)
  assert 'secret' not in summary
  assert summary.startswith('before\n word')
  assert summary.endswith(CUT_MARKER)
  assert len(summary) <= 500 + len(CUT_MARKER)


def test_code_that_is_never_closed_is_dropped_to_the_end():
  assert summarize_feedback('before\n```python\nsecret = 1') == 'before'


def test_short_feedback_is_not_changed():
  text = 'TEST_PASS_MASK: (False,)\nFAILED: f([1, 2]) expected 5, got 4'
  assert summarize_feedback(text) == text


@given(st.text(max_size=80), st.integers(1, 40))
def test_summary_never_exceeds_limit_and_marker(text, limit):
  assert len(summarize_feedback(text, limit)) <= limit + len(CUT_MARKER)


def test_limit_of_nothing_is_refused():
  with pytest.raises(ValueError, match='limit is 0'):
    summarize_feedback('text', 0)
