"""Finds the parts of a prompt that are not prose and must not be edited.

In a text that is Python, such as a signature with its docstring, everything
outside docstrings is code. In other text, code is recognised by its markers
and, where it is indented, by whether it parses.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator, Sequence
from typing import Any

from promptrl_jax.prompts import parsing

Span = tuple[int, int]

_MARKED = re.compile(
  r'```.*?(?:```|\Z)|~~~.*?(?:~~~|\Z)'  # fenced code
  r'|\[PYTHON\].*?(?:\[/PYTHON\]|\Z)'
  r'|`[^`\n]+`'  # inline code
  r'|https?://\S+',
  re.DOTALL,
)
_QUOTED = re.compile(
  r'(?<!")"(?!")[^"\n]+"(?!")|“[^”\n]+”|‘[^’\n]+’'
  # An apostrophe inside a word neither opens nor closes a quotation.
  r"|(?<!\w)'(?:[^'\n]|(?<=\w)'(?=\w))+'(?!\w)"
  r'|\[[^\]\n]*\]|\{[^}\n]*\}'  # literals and indices
  r'|\b\w+\((?:[^()\n]|\([^()\n]*\))*\)'  # calls
  r'|\bassert\b(?=[^\n]*[=(<>])[^\n]*'
)
_QUOTES = re.compile(r'[rRuU]?("""|\'\'\'|"|\')')
_CODE_LINE = re.compile(
  r'>>>|\.\.\.|@\w|assert\b|(?:async )?def \w+ *\(|class \w+.*:\Z'
  r'|from \S+ import |import \w'
  r'|(?:if|elif|else|for|while|with|try|except|finally)\b.*:\Z'
)


def protected_spans(text: str, names: Sequence[str] = ()) -> list[Span]:
  """Returns half-open character ranges that an edit must not touch, sorted.

  Names are protected wherever they occur, in exactly this case.
  """
  spans: list[Span] = []
  start = 0
  for prose_start, prose_end in _docstrings(text) or [(0, len(text))]:
    spans.append((start, prose_start))
    prose = text[prose_start:prose_end]
    for a, b in itertools.chain(_marked(prose), _code_lines(prose)):
      spans.append((prose_start + a, prose_start + b))
    start = prose_end
  spans.append((start, len(text)))
  for name in names:
    if name:
      pattern = rf'(?<!\w){re.escape(name)}(?!\w)'
      spans.extend(m.span() for m in re.finditer(pattern, text))
  return sorted(span for span in spans if span[0] < span[1])


def _marked(text: str) -> Iterator[Span]:
  """Yields spans of fences, inline code, quotations and brackets."""
  position = 0
  # Quotation marks inside code open nothing, so look between code only.
  for match in itertools.chain(_MARKED.finditer(text), [None]):
    end = match.start() if match else len(text)
    for quoted in _QUOTED.finditer(text, position, end):
      yield quoted.span()
    if match:
      yield match.span()
      position = match.end()


def _code_lines(text: str) -> Iterator[Span]:
  """Yields spans of lines of code and of the output after a doctest."""
  position = 0
  after_doctest = False
  for line in text.split('\n'):
    stripped = line.strip()
    after_doctest = bool(stripped) and (
      after_doctest or stripped.startswith('>>>')
    )
    indented = line.startswith(('    ', '\t'))
    if (
      after_doctest
      or _CODE_LINE.match(stripped)
      or (indented and stripped and parsing.parse_or_none(stripped))
    ):
      yield position, position + len(line)
    position += len(line) + 1


def _docstrings(text: str) -> list[Span]:
  """Returns spans inside docstrings; empty if the text is not Python."""
  # A lone carriage return ends a line for Python but not for `split`.
  lone = re.search(r'\r(?!\n)', text)
  tree = None if lone else parsing.parse_or_none(text)
  definitions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
  if tree is None or not any(isinstance(n, definitions) for n in tree.body):
    return []
  lines = text.split('\n')
  starts = [0, *itertools.accumulate(len(line) + 1 for line in lines)]

  def offset(line: int, column: int) -> int:
    """Columns count UTF-8 bytes."""
    return starts[line - 1] + len(lines[line - 1].encode()[:column].decode())

  spans = []
  for node in ast.walk(tree):
    if not isinstance(node, (ast.Module, *definitions)):
      continue
    if ast.get_docstring(node, clean=False):
      literal: Any = node.body[0]
      start = offset(literal.lineno, literal.col_offset)
      end = offset(literal.end_lineno, literal.end_col_offset)
      quotes = _QUOTES.match(text, start)
      if quotes and text.endswith(quotes[1], start, end):
        spans.append((quotes.end(), end - len(quotes[1])))
  return sorted(spans) or [(len(text), len(text))]
