"""Feedback text about test verdicts, for a model that tries again.

Callers pass the verdicts of visible tests only: nothing in this file can tell a
visible test from a hidden one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from promptrl_jax.execution.program import TestResult

CUT_MARKER = ' [...]'
_MASK_LABEL = 'TEST_PASS_MASK'
_MESSAGE_LIMIT = 200
_CODE = re.compile(
  r'```.*?(?:```|\Z)|~~~.*?(?:~~~|\Z)'
  r'|\[PYTHON\].*?(?:\[/PYTHON\]|\Z)|<code>.*?(?:</code>|\Z)',
  re.DOTALL | re.IGNORECASE,
)


def feedback_text(verdicts: Sequence[TestResult]) -> str:
  """Returns a pass mask, then one line for each test that did not pass.

  A wrong value is reported by its message alone, everything else also by the
  exception or status, so that the word "error" means that something was raised.
  Messages come from untrusted programs: each is squeezed to one line of at most
  200 characters.
  """
  mask = tuple(v.status == 'passed' for v in verdicts)
  failures = [_failure_line(v) for v in verdicts if v.status != 'passed']
  return '\n'.join([f'{_MASK_LABEL}: {mask}', *failures])


def results_text(tests: Sequence[str], verdicts: Sequence[TestResult]) -> str:
  """Returns one line for each test that may be shown, those passed first.

  A test that was not passed has its call's value, the error, or the status
  behind it.
  """
  pairs = list(zip(tests, verdicts, strict=True))
  passed = [test for test, verdict in pairs if verdict.status == 'passed']
  failed = [
    f'{_failure_line(verdict)} in {test}'
    for test, verdict in pairs
    if verdict.status != 'passed'
  ]
  return '\n'.join([*(f'PASSED: {test}' for test in passed), *failed])


def summarize_feedback(text: str, limit: int = 500) -> str:
  """Returns feedback without code and blank lines, cut to `limit` characters.

  Fenced and tagged code that is never closed reaches to the end; `CUT_MARKER`
  stands after the limit.
  """
  if limit < 1:
    raise ValueError(f'limit is {limit}; expected at least 1 character')
  lines = without_code(text).split('\n')
  text = '\n'.join(line.rstrip() for line in lines if line.strip())
  if len(text) <= limit:
    return text
  return text[:limit].rstrip() + CUT_MARKER


def without_code(text: str) -> str:
  """Returns a text with an empty line in place of fenced and tagged code.

  Code that is never closed reaches to the end.
  """
  return _CODE.sub('\n', text)


def _failure_line(verdict: TestResult) -> str:
  message = ' '.join(verdict.message.split())
  if len(message) > _MESSAGE_LIMIT:
    message = message[:_MESSAGE_LIMIT].rstrip() + CUT_MARKER
  reason = ''
  if verdict.status != 'failed' or not message:
    reason = verdict.error_type or verdict.status
  if reason and message.startswith(reason):
    reason = ''
  return 'FAILED: ' + ': '.join(part for part in (reason, message) if part)
