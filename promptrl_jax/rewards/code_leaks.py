"""Finds Python in a rewrite, and pieces of the reference under other names."""

from __future__ import annotations

import ast
import builtins
import functools
import keyword
import re
from collections.abc import Iterator

from promptrl_jax.prompts import parsing
from promptrl_jax.rewards import expressions
from promptrl_jax.types import Task

_TOKEN = re.compile(
  r"""'[^'\n]*'|"[^"\n]*"|[A-Za-z_]\w*|\d+(?:\.\d+)?|==|!=|<=|>=|//|\*\*|\S"""
)
# Marks of prose, which do not make a run of tokens look like code.
_PROSE = frozenset(',.:;!?-"\'')
_ARITHMETIC = frozenset([*'+-*/%(),.', '**', '//'])
_KNOWN_NAMES = frozenset([*dir(builtins), *keyword.kwlist])
# Syntax that no statement in words has.
_SYNTAX = re.compile(
  r'```|~~~|\[/?PYTHON\]|</?code>'
  r'|\bdef\s+\w+\s*\(|\bclass\s+\w+\s*[(:]|\blambda\b[\w\s,]*:'
  r'|(?:^|\n)\s*import\s+\w|\bfrom\s+[\w.]+\s+import\b'
  r'|(?:^|\n|;)\s*[A-Za-z_]\w*\s*=(?!=)\s*\S|\w\s*(?:[-+*/%]|//)=\s*\w'
  r'|\w\s*=(?!=)[^\n]*\breturn\b',
  re.IGNORECASE,
)
_HEADER = re.compile(r'\b(?:for|while|if)[\s(][^:\n]{1,200}:')
_RETURN = re.compile(r'\breturn\b\s*(?=\S)')
_CALL = re.compile(r'(?<!\w)[A-Za-z_][\w.]*\(')
# A run of this many tokens of the reference, so many of them operators or
# brackets, is copied: prose about a problem shares shorter ones with it.
_RUN, _MARKS = 6, 3


def has_code(text: str, task: Task) -> bool:
  """Whether `text` holds Python, or a piece of the task's reference.

  Names are no hiding place: a piece of the reference is found with its own
  variables renamed.
  """
  return (
    bool(_SYNTAX.search(text))
    or any(  # The first line of a loop or a condition: `for x in nums:`.
      parsing.parse_or_none(f'{match.group()} pass')
      for match in _HEADER.finditer(text)
    )
    or _returns_code(text, task.statement)
    or any(_is_code(part) for part in _expressions(text))
    or not _runs(text).isdisjoint(
      _reference_runs(task.reference) - _runs(task.statement)
    )
  )


def _is_code(source: str) -> bool:
  """An expression that computes in more than one step."""
  tree = expressions.parse(source)
  if tree is None:
    return False
  nodes = list(ast.walk(tree))
  if any(isinstance(n, ast.comprehension | ast.Lambda) for n in nodes):
    return True
  calls = sum(isinstance(node, ast.Call) for node in nodes)
  steps = (ast.Subscript, ast.Attribute, ast.BinOp, ast.IfExp)
  more = any(isinstance(node, steps) for node in nodes)
  return calls > 1 or (calls == 1 and more)


def _expressions(text: str) -> Iterator[str]:
  """Calls and bracketed parts, outermost first."""
  for match in _CALL.finditer(text):
    yield expressions.bracketed(text, match.end() - 1, match.start())
  for match in re.finditer(r'[(\[{]', text):
    yield expressions.bracketed(text, match.start(), match.start())


def _returns_code(text: str, statement: str) -> bool:
  """A `return` with an expression behind it that is more than a name."""
  for match in _RETURN.finditer(text):
    words = text[match.end() :][: expressions.LONGEST].split('\n', 1)[0].split()
    for count in range(1, len(words) + 1):
      source = ' '.join(words[:count]).rstrip('.;,')
      if _is_result(source) and f'return {source}' not in statement:
        return True
  return False


def _is_result(source: str) -> bool:
  """An expression that computes, not words that happen to parse as one."""
  tree = expressions.parse(source)
  match tree:
    case ast.Call() | ast.Subscript() | ast.IfExp() | ast.JoinedStr():
      return True
    case ast.Compare(ops=ops):
      # "return those in which", "return whatever is left"
      words = (ast.In, ast.NotIn, ast.Is, ast.IsNot)
      return not all(isinstance(op, words) for op in ops)
    case ast.BinOp():
      # "non-negative" would be a difference.
      return bool(re.search(r'\s[-+*/%]+\s', source))
  return tree is not None and _is_code(source)


def _runs(text: str) -> set[tuple[str, ...]]:
  """Runs of tokens that look like code, own names and strings made alike."""
  tokens = [_alike(token) for token in _TOKEN.findall(text)]
  windows = zip(*(tokens[i:] for i in range(_RUN)), strict=False)
  return {
    run for run in windows if _marks(run) >= _MARKS and not _is_formula(run)
  }


def _is_formula(run: tuple[str, ...]) -> bool:
  """Only arithmetic, which words may need: "the number n * (n - 1) / 2"."""
  return all(
    token in _ARITHMETIC or token == 'a name' or token[0].isdigit()
    for token in run
  )


def _alike(token: str) -> str:
  if token[0] in '\'"' and len(token) > 1:
    return 'a string'
  if token.isidentifier() and token not in _KNOWN_NAMES:
    return 'a name'
  return token


def _marks(run: tuple[str, ...]) -> int:
  return sum(
    len(token) <= 2 and not token.isalnum() and token not in _PROSE
    for token in run
  )


@functools.lru_cache(maxsize=4096)
def _reference_runs(reference: str) -> frozenset[tuple[str, ...]]:
  return frozenset(_runs(reference))
