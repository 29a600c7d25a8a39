"""Splits test code into single assertions, which are judged one by one.

HumanEval tests a task by one function, `check(candidate)`; others by a script.
Each `assert` in it becomes a test of its own, together with the statements
before it that it needs:

  def check(candidate):
    items = list(range(9))          items = list(range(9))
    assert candidate([]) == 0  -->  assert total(items) == 36
    assert candidate(items) == 36

A loop, or any other statement with assertions inside, stays one test. What
never calls the function (`assert True`) tests nothing and is left out.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from promptrl_jax.execution import syntax
from promptrl_jax.prompts import parsing

_FUNCTION, _PARAMETER = 'check', 'candidate'


def of_function(source: str, entry_point: str) -> tuple[str, ...]:
  """Returns the tests of a module that defines `check(candidate)`.

  Args:
    source: the module, with whatever `check` needs.
    entry_point: name of the function under test, which takes the place of the
      parameter.

  Raises:
    ValueError: the module does not parse, has no such function, or the function
      has no assertion on its parameter.
  """
  module = _parse(source)
  checks = [
    s
    for s in module.body
    if isinstance(s, ast.FunctionDef) and s.name == _FUNCTION
  ]
  if not checks or [a.arg for a in checks[-1].args.args] != [_PARAMETER]:
    raise ValueError(f'no function {_FUNCTION}({_PARAMETER}) in the tests')
  check = checks[-1]
  before = module.body[: module.body.index(check)]
  if entry_point in syntax.stored(check):  # It would hide the function.
    check = _Rename(entry_point, f'{entry_point}_').visit(check)
  named = _Rename(_PARAMETER, entry_point)
  body = [named.visit(statement) for statement in check.body]
  return _tests([*before, *body], entry_point)


def of_script(source: str, entry_point: str) -> tuple[str, ...]:
  """Returns the tests of a script that calls the function by its name.

  Raises:
    ValueError: the script does not parse or has no assertion on the function.
  """
  return _tests(_parse(source).body, entry_point)


class _Rename(ast.NodeTransformer):
  """Gives a name another name, wherever it occurs."""

  def __init__(self, old: str, new: str):
    self._old, self._new = old, new

  def visit_Name(self, node: ast.Name) -> ast.Name:
    if node.id == self._old:
      return ast.copy_location(ast.Name(self._new, node.ctx), node)
    return node

  def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
    if node.name == self._old:
      node.name = self._new
    return self.generic_visit(node)


def renamed(source: str, old: str, new: str) -> str:
  """Returns a program in which a function has another name.

  Docstrings and annotations, which a test does not need, are left out.
  """
  module = _parse(source)
  for node in ast.walk(module):
    if isinstance(node, ast.FunctionDef):
      node.returns = None
      for arg in (*node.args.posonlyargs, *node.args.args):
        arg.annotation = None
      if ast.get_docstring(node, clean=False) is not None:
        node.body = node.body[1:] or [ast.Pass()]
  module.body = [s for s in module.body if not _is_typing(s)]
  return ast.unparse(_Rename(old, new).visit(module))


def _is_typing(statement: ast.stmt) -> bool:
  return isinstance(statement, ast.ImportFrom) and statement.module == 'typing'


def _parse(source: str) -> ast.Module:
  try:
    return parsing.parse(source)
  except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
    raise ValueError(f'the tests do not parse: {error}') from None


def _tests(body: Sequence[ast.stmt], entry_point: str) -> tuple[str, ...]:
  tests, before = [], []
  for statement in body:
    facts = syntax.facts(statement)
    if ast.Assert not in facts.kinds or isinstance(statement, ast.FunctionDef):
      before.append((statement, facts))
      continue
    needed = _needed(before, facts.loaded)
    loaded = facts.loaded.union(*(of_one.loaded for _, of_one in needed))
    if entry_point not in loaded:
      continue
    if isinstance(statement, ast.Assert):
      statement.msg = None  # Says nothing to a reader: "Test 1".
    lines = [ast.unparse(s) for s in (*(s for s, _ in needed), statement)]
    tests.append('\n'.join(lines))
  if not tests:
    raise ValueError(f'no assertion on {entry_point!r} in the tests')
  return tuple(tests)


def _needed(
  before: Sequence[tuple[ast.stmt, syntax.Facts]], loaded: set[str]
) -> list[tuple[ast.stmt, syntax.Facts]]:
  """The statements that bind or change what is loaded, in their order."""
  needed, wanted = [], set(loaded)
  for statement, facts in reversed(before):
    # `items.append(1)` binds nothing and may change what it loads.
    touched = facts.stored
    if isinstance(statement, ast.Expr):
      touched = facts.loaded
    if touched & wanted:
      needed.append((statement, facts))
      wanted |= facts.loaded
  return needed[::-1]
