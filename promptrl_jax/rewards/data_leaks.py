"""Finds tests, and what they pass and expect, in a rewrite.

What the statement says already is no leak, nor is a constant of the reference:
"return 'odd'" belongs to the task.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import re
from collections.abc import Sequence

from promptrl_jax.prompts import parsing
from promptrl_jax.rewards import expressions
from promptrl_jax.types import Task

_SCALAR = re.compile(r"""'[^'\n]*'|"[^"\n]*"|(?<![\w.])-?\d+(?:\.\d+)?(?!\w)""")
# A value with so many digits, letters or parts is not met by chance.
_DIGITS, _LETTERS, _PARTS = 3, 4, 3

Scalars = tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class _Case:
  """Scalars of the arguments and of the expected value of one assertion."""

  arguments: Scalars
  expected: Scalars


def has_assertion(text: str, task: Task) -> bool:
  """Whether `text` asserts something, or calls the function on data."""
  if re.search(r'\bassert\b[^\n]*(?:[=!<>]=|[<>]|\bis\b|\()', text):
    return True
  call = re.compile(rf'(?<!\w){re.escape(task.entry_point)}\s*\(')
  return any(
    _is_literal_call(found)
    for match in call.finditer(text)
    if (found := expressions.bracketed(text, match.end() - 1, match.start()))
    and found not in task.statement
  )


def has_test_data(
  text: str, task: Task, visible_tests: Sequence[str] = ()
) -> bool:
  """Whether `text` names what a hidden test passes or expects.

  Either data that is not met by chance (a number of three digits, four letters,
  three parts), or arguments of a test with its value after them.
  """
  found = _scalars(text)
  given = {
    *_scalars(task.statement),
    *_constants(task.reference),
    *(s for test in visible_tests for s in _scalars(test)),
  }
  for case in _cases(task.tests, task.entry_point):
    for data in (case.arguments, case.expected):
      known = given.issuperset(data)
      if not known and _is_telling(data) and _occurs(data, found, text):
        return True
    if given.issuperset(case.expected):
      continue
    place = _find(case.arguments, found) if case.arguments else -1
    if place >= 0 and len(case.arguments + case.expected) >= _PARTS:
      rest = found[place + len(case.arguments) :]
      if _find(case.expected, rest) >= 0:
        return True
  return False


def _is_literal_call(source: str) -> bool:
  match expressions.parse(source):
    case ast.Call(args=args, keywords=keywords) if args or keywords:
      return all(map(_is_literal, args))
  return False


def _is_literal(node: ast.expr) -> bool:
  try:
    ast.literal_eval(node)
  except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
    return False
  return True


@functools.lru_cache(maxsize=4096)
def _cases(tests: tuple[str, ...], name: str) -> tuple[_Case, ...]:
  """Arguments and value of each `assert ... name(arguments) ... == value`."""
  cases = []
  for test in tests:
    tree = parsing.parse_or_none(test.strip())
    for node in ast.walk(tree) if tree else ():
      if isinstance(node, ast.Compare) and _is_literal(node.comparators[-1]):
        expected = _values(node.comparators[-1])
        cases.append(_Case(_arguments(node.left, name), expected))
  return tuple(cases)


def _arguments(node: ast.expr, name: str) -> Scalars:
  """Scalars that the outermost call of a function passes."""
  for call in ast.walk(node):
    match call:
      case ast.Call(func=ast.Name(id=called), args=args) if called == name:
        return _values(ast.Tuple(args))
  return ()


def _values(tree: ast.AST) -> Scalars:
  """Numbers and strings of a syntax tree, in order, signs included."""
  match tree:
    case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=value)):
      return (repr(-value),) if isinstance(value, int | float) else ()
    case ast.Constant(value=bool() | None):
      return ()
    case ast.Constant(value=int() | float() | str() as value):
      return (repr(value),)
    case ast.Dict(keys=keys, values=values):
      pairs = zip(keys, values, strict=True)
      nodes = [node for pair in pairs for node in pair if node]
    case _:
      nodes = list(ast.iter_child_nodes(tree))
  return tuple(value for node in nodes for value in _values(node))


@functools.lru_cache(maxsize=4096)
def _constants(source: str) -> frozenset[str]:
  tree = parsing.parse_or_none(source)
  return frozenset(_values(tree) if tree else ())


def _scalars(text: str) -> list[str]:
  """Numbers and quoted strings of a text, written as `_values` does."""
  found = []
  for match in _SCALAR.finditer(text):
    tree = expressions.parse(match.group())
    found += _values(tree) if tree is not None else [match.group()]
  return found


def _is_telling(expected: Scalars) -> bool:
  if len(expected) != 1:
    return len(expected) >= _PARTS
  (value,) = expected
  if value[0] in '\'"':
    return len(ast.literal_eval(value)) >= _LETTERS
  return len(re.findall(r'\d', value.split('e')[0].strip('-0.'))) >= _DIGITS


def _occurs(expected: Scalars, found: Sequence[str], text: str) -> bool:
  if _find(expected, found) >= 0:
    return True
  if len(expected) != 1 or expected[0][0] not in '\'"':
    return False
  # Without quotes, a common word says nothing: "list" may be a result.
  word = ast.literal_eval(expected[0])
  if re.fullmatch(r'[a-z ]*', word) or not word.strip():
    return False
  return bool(re.search(rf'(?<!\w){re.escape(word)}(?!\w)', text))


def _find(part: Sequence[str], whole: Sequence[str]) -> int:
  """Where `part` begins in `whole`, or -1."""
  size = len(part)
  for start in range(len(whole) - size + 1):
    if tuple(whole[start : start + size]) == tuple(part):
      return start
  return -1
