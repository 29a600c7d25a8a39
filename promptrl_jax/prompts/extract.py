"""Finds the program in a model's reply.

Models wrap code in fences, tags and prose, forget to close them, or continue
with prose after the last line. The Python compiler decides which lines are
code. Text is cut only between lines or at a marker; of the code itself, only
common indentation is removed.
"""

from __future__ import annotations

import ast
import re
import textwrap
import warnings
from collections.abc import Iterator

from promptrl_jax.prompts import parsing

_FENCE = re.compile(r'(?P<fence>`{3,}|~{3,})[ \t]*(?P<tag>[\w.+-]*)[ \t\r]*\n')
_TAGS = (('[PYTHON]', '[/PYTHON]'), ('[BEGIN]', '[DONE]'))
_PYTHON = ('python', 'python3', 'py')
# Where a block that was opened before the text began may end.
_ORPHAN_END = re.compile(
  r'^[ \t]*(?:`{3}|~{3}|\[/PYTHON\]|\[DONE\])', re.MULTILINE | re.IGNORECASE
)
_CODE_LINE = re.compile(
  r'[ \t]*(?:(?:async[ \t]+)?def\b|class\b|@\w)'
  r'|(?:import|from)\b|[A-Za-z_]\w*[ \t]*(?::[^=\n]+)?=[^=]'
)
_MAX_FENCES = 6  # Ends of one fenced block that are tried.
_MAX_CUTS = 300  # Attempts at cutting one answer; bounds time on junk.


def extract_code(text: str, entry_point: str | None = None) -> str:
  """Returns the program in a reply, with imports, helpers and classes.

  Places are tried in this order: text up to the end of a block that the prompt
  opened, fences tagged as Python, `[PYTHON]` tags, other fences, the raw text.
  In each, the longest run of lines from the first line of code that compiles is
  a candidate; the first that defines `entry_point` wins over earlier ones that
  do not. The source compiles and is as it was written, without blank lines
  around it; it is empty if no place holds a function.
  """
  fallback = ''
  cuts = iter(range(_MAX_CUTS))
  for candidate in _candidates(text):
    for code in _programs(candidate, cuts):
      names, has_function = _definitions(code)
      if has_function or entry_point in names:
        if entry_point is None or entry_point in names:
          return code
        fallback = fallback or code
  return fallback


def compiles(code: str) -> bool:
  """Whether the source compiles; nothing is executed."""
  return _compile_error(code) is None


def _candidates(text: str) -> Iterator[str]:
  """Yields parts of the text that may be code, most clearly marked first."""
  if orphan_end := _ORPHAN_END.search(text):
    head = text[: orphan_end.start()]
    opened = any(start in head.upper() for start, _ in _TAGS)
    if not opened and compiles(head):
      yield head
  fenced = list(_fenced(text))
  yield from (body for tag, body in fenced if tag in _PYTHON)
  yield from _tagged(text)
  yield from (body for tag, body in fenced if not tag)
  yield from (body for tag, body in fenced if tag and tag not in _PYTHON)
  yield text


def _fenced(text: str) -> Iterator[tuple[str, str]]:
  """Yields (tag, body) of each fenced block; the last may lack its end."""
  position = 0
  while opening := _FENCE.search(text, position):
    body = text[opening.end() :]
    ends = [m.start() for m in re.finditer(opening['fence'], body)]
    # A docstring may hold a fence, so the first end that leaves code is it.
    tried = ends[:_MAX_FENCES]
    end = next((e for e in tried if compiles(_dedent(body[:e]))), None)
    if end is None:
      end = ends[0] if ends else len(body)
    yield opening['tag'].lower(), body[:end]
    position = opening.end() + end + len(opening['fence'])


def _tagged(text: str) -> Iterator[str]:
  """Yields bodies of `[PYTHON]` and `[BEGIN]` blocks; ends may be missing."""
  for start, end in _TAGS:
    pattern = f'{re.escape(start)}(.*?)(?:{re.escape(end)}|\\Z)'
    for match in re.finditer(pattern, text, re.DOTALL | re.IGNORECASE):
      yield match[1]


def _programs(text: str, cuts: Iterator[int]) -> Iterator[str]:
  """Compiling stretches of a candidate: all of it, or from each code line."""
  whole = _trim(_dedent(text))
  if compiles(whole):
    yield _without_trailing_words(whole)
    return
  lines = text.split('\n')
  i = 0
  while i < len(lines):
    run = ''
    if _CODE_LINE.match(lines[i]):
      run = _longest_program([lines[i].lstrip(' \t'), *lines[i + 1 :]], cuts)
      if not run and lines[i][:1] in ' \t':
        dedented = _dedent('\n'.join(lines[i:])).split('\n')
        run = _longest_program(dedented, cuts)
    if run:
      yield _without_trailing_words(run)
    i += run.count('\n') + 1


def _longest_program(lines: list[str], cuts: Iterator[int]) -> str:
  """The longest prefix of lines that compiles; each attempt takes one cut.

  A prefix that holds the line of a syntax error fails with the same error, so
  the search jumps to the line before it.
  """
  end = len(lines)
  while end > 0 and next(cuts, None) is not None:
    code = '\n'.join(lines[:end])
    error = _compile_error(code)
    if error is None:
      return _trim(code)
    line = error.lineno if isinstance(error, SyntaxError) else None
    end = min(end, line or end) - 1
  return ''


def _without_trailing_words(code: str) -> str:
  """Cuts words after the program that happen to parse, as `Explanation`."""
  end = len(body := parsing.parse(code).body)
  while end and isinstance(statement := body[end - 1], ast.Expr):
    if not isinstance(statement.value, (ast.Name, ast.List, ast.Tuple)):
      break
    end -= 1
  if end == len(body):
    return code
  kept = code.split('\n')[: body[end].lineno - 1]
  return _trim('\n'.join(kept))


def _definitions(code: str) -> tuple[set[str], bool]:
  """Names bound at top level, and whether the code defines a function."""
  tree = parsing.parse(code)
  names: set[str] = set()
  named_lambda = False
  for node in tree.body:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
      names.add(node.name)
    elif isinstance(node, ast.Assign):
      names.update(t.id for t in node.targets if isinstance(t, ast.Name))
      named_lambda |= isinstance(node.value, ast.Lambda)
  functions = (ast.FunctionDef, ast.AsyncFunctionDef)
  has_def = any(isinstance(n, functions) for n in ast.walk(tree))
  return names, has_def or named_lambda


def _compile_error(code: str) -> Exception | None:
  with warnings.catch_warnings():
    warnings.simplefilter('ignore')
    try:
      compile(code, '<answer>', 'exec', dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
      return error
  return None


def _dedent(text: str) -> str:
  """Takes off common indentation, only from text that does not parse as is."""
  return text if compiles(text) else textwrap.dedent(text)


def _trim(code: str) -> str:
  """Drops blank lines before and after, and nothing else."""
  lines = code.split('\n')
  filled = [i for i, line in enumerate(lines) if line.strip()]
  return '\n'.join(lines[filled[0] : filled[-1] + 1]) if filled else ''
