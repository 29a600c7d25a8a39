"""Reads, validates and repairs a one-sentence rewrite of a task.

The rewriter is asked to answer with `PREFIX` and one sentence. A template
replaces one that is not usable, so that a failed rewrite costs a model call and
never leads to a broken prompt.
"""

from __future__ import annotations

import re

PREFIX = 'Rewritten task:'
# A full stop inside `e.g.`, `i.e.`, `etc.`, `vs.`, `2.5` or `a.b` ends nothing.
SENTENCE_END = re.compile(
  r'(?<!\be\.g)(?<!\bi\.e)(?<!\betc)(?<!\bvs)[.!?]+(?=\s|\Z)', re.IGNORECASE
)
# Statements and syntax of code. The seed system took the bare words `from` and
# `import` for code and so refused every task about "numbers from a list".
_CODE_MARKERS = (
  ('```', re.compile(r'```|~~~')),
  ('[PYTHON]', re.compile(r'\[/?PYTHON\]', re.IGNORECASE)),
  ('def', re.compile(r'\bdef\s+\w+\s*\(')),
  ('class', re.compile(r'\bclass\s+\w+\s*[(:]')),
  ('import', re.compile(r'(?:^|\n)\s*import\s+\w|\bfrom\s+[\w.]+\s+import\b')),
  ('#include', re.compile(r'#\s*include\b')),
  (';', re.compile(r';')),
  ('{}', re.compile(r'[{}]')),
)


def extract_rewrite(text: str) -> str:
  """Returns the rewritten sentence of a reply, without its prefix.

  This is the first sentence of the first non-blank line between the first
  prefix (in any case) and a second one, with single spaces. A reply without a
  prefix is returned whole, with single spaces; `validate_rewrite` refuses it.
  """
  parts = _split(text)
  if len(parts) == 1:
    return _squeeze(text)
  lines = parts[1].strip().split('\n')
  sentence_end = SENTENCE_END.search(lines[0])
  return _squeeze(lines[0][: sentence_end.end() if sentence_end else None])


def validate_rewrite(text: str, function_name: str) -> list[str]:
  """Returns the reasons why a reply cannot be used, empty if it can.

  The prefix must occur once, the function's name as a separate word.
  """
  errors = []
  parts = _split(text)
  body = (text if len(parts) == 1 else PREFIX.join(parts[1:])).strip()
  if len(parts) == 1:
    errors.append('prefix missing')
  elif len(parts) > 2:
    errors.append(f'prefix occurs {len(parts) - 1} times')
  if not body:
    errors.append('empty body')
  sentence_end = SENTENCE_END.search(body)
  if '\n' in body or (sentence_end and sentence_end.end() < len(body)):
    errors.append('more than one sentence')
  errors.extend(
    f'code marker {name}' for name, m in _CODE_MARKERS if m.search(body)
  )
  if not re.search(rf'(?<!\w){re.escape(function_name)}(?!\w)', body):
    errors.append(f'function name {function_name} missing')
  return errors


def repair_rewrite(function_name: str, task: str) -> str:
  """Returns a rewrite from a template, prefix included, that is valid.

  The words of the task are kept. Fences, tags, keywords of code, semicolons and
  braces are removed, and ends of sentences become commas. Repairing a repaired
  task changes nothing.
  """
  opening = (
    f'Write a Python function named {function_name} for the following task:'
  )
  words, before = task.strip().removeprefix(opening), None
  # Again until nothing changes: what is taken out may have split something
  # else in two, as in `#includeRewritten task:` or `Rewritten ```task:`.
  while words != before:
    words, before = _take_out_errors(words), words
  words = words.strip(' ,.!?') or 'solve the task'
  return f'{PREFIX} {opening} {words}.'


def _take_out_errors(words: str) -> str:
  """One pass of `repair_rewrite`; it never makes the text longer."""
  words = re.sub(r'```\w*|~~~\w*|\[/?PYTHON\]', ' ', words, flags=re.IGNORECASE)
  words = words.translate(str.maketrans({';': ',', '{': '(', '}': ')'}))
  words = re.sub(r'\b(?:def|class|import)\b|#\s*include\b', ' ', words)
  words = SENTENCE_END.sub(',', _squeeze(words))
  return _squeeze(' '.join(_split(words)))


def _split(text: str) -> list[str]:
  return re.split(re.escape(PREFIX), text, flags=re.IGNORECASE)


def _squeeze(text: str) -> str:
  return ' '.join(text.split())
