"""Finds the name of the function that a task's tests call."""

from __future__ import annotations

import ast
import builtins
import collections
import textwrap
from collections.abc import Iterator, Sequence


def entry_point(tests: Sequence[str]) -> str:
  """Name of the function under test.

  It is the outermost call in an assertion that is not of a builtin, of an
  imported module or of a name that the test binds itself; of several, the one
  that most tests call, and of these the first. Only if there is none, the
  outermost call of a builtin: MBPP 126 tests a function called `sum`.

  Args:
    tests: each one or more statements that hold an `assert`.

  Raises:
    ValueError: a test does not parse, or no test calls a function by name.
  """
  parsed = [_parse(test) for test in tests]
  called = [_called(tree) for tree in parsed]
  for names in (
    [[n for n in names if not hasattr(builtins, n)] for names in called],
    called,
  ):
    counts = collections.Counter(n for unique in names for n in set(unique))
    order = [name for test in names for name in test]
    if order:
      return max(order, key=lambda name: (counts[name], -order.index(name)))
  raise ValueError(f'no assertion calls a function by its name: {list(tests)}')


def _parse(test: str) -> ast.Module:
  try:
    return ast.parse(textwrap.dedent(test).strip())
  except (SyntaxError, ValueError) as error:
    raise ValueError(f'the test {test!r} does not parse: {error}') from None


def _called(tree: ast.Module) -> list[str]:
  """Names that assertions call, outermost and leftmost first."""
  bound = set(_bound(tree))
  return [
    node.func.id
    for check in ast.walk(tree)
    if isinstance(check, ast.Assert)
    for node in _outside_in(check.test)
    if isinstance(node, ast.Call)
    and isinstance(node.func, ast.Name)
    and node.func.id not in bound
  ]


def _outside_in(node: ast.AST) -> Iterator[ast.AST]:
  yield node
  for child in ast.iter_child_nodes(node):
    yield from _outside_in(child)


def _bound(tree: ast.Module) -> Iterator[str]:
  for node in ast.walk(tree):
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
      yield node.id
    elif isinstance(node, ast.alias):
      yield (node.asname or node.name).partition('.')[0]
    elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
      yield node.name
    elif isinstance(node, ast.arg):
      yield node.arg
