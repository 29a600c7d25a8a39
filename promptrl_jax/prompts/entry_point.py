"""Finds the name of the function that a task's tests call."""

from __future__ import annotations

import ast
import builtins
import collections
import textwrap
from collections.abc import Iterator, Sequence


def entry_point(tests: Sequence[str]) -> str:
  """Returns the name of the function under test.

  This is the outermost function that an assertion calls by name and that is
  neither a builtin, nor imported, nor bound by the test itself. Of several, the
  one that most tests call is returned, and of these the first. If the tests
  call builtins only, it is one of them: MBPP 126 tests a function named `sum`.

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
  """Returns the names that assertions call, outermost and leftmost first."""
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
