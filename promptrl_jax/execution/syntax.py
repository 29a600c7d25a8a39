"""Questions about the syntax tree of a test."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from promptrl_jax.execution import names as names_lib


def walk(node: ast.AST) -> Iterator[ast.AST]:
  """`node` and what lies below it, without constants and contexts.

  Half the time of `ast.walk`: most of a test is literals.
  """
  todo = [node]
  while todo:
    node = todo.pop()
    yield node
    for value in vars(node).values():
      if isinstance(value, list):
        todo.extend(
          item
          for item in value
          if isinstance(item, ast.AST) and not isinstance(item, ast.Constant)
        )
      elif isinstance(value, ast.AST) and not isinstance(
        value, ast.Constant | ast.expr_context
      ):
        todo.append(value)


def root(node: ast.expr) -> tuple[str | None, bool]:
  """Name at the start of a chain, and whether a call or index lies between."""
  crosses = False
  while isinstance(node, (ast.Attribute, ast.Call, ast.Subscript)):
    crosses |= not isinstance(node, ast.Attribute)
    node = node.func if isinstance(node, ast.Call) else node.value
  return (node.id if isinstance(node, ast.Name) else None), crosses


def holds(node: ast.AST, kind: type[ast.AST]) -> bool:
  """Whether there is a node of that type in or below `node`."""
  return any(isinstance(child, kind) for child in walk(node))


def is_foreign_import(statement: ast.stmt) -> bool:
  """Whether it imports what the judge does not offer."""
  if isinstance(statement, ast.ImportFrom):
    modules = [statement.module or '']
  elif isinstance(statement, ast.Import):
    modules = [alias.name for alias in statement.names]
  else:
    return False
  return not all(module in names_lib.MODULES for module in modules)


def is_code(statement: ast.stmt) -> bool:
  """Whether it binds functions or modules, which both sides need."""
  kinds = (ast.Import, ast.ImportFrom, ast.FunctionDef)
  return isinstance(statement, kinds) or holds(statement, ast.Lambda)


def stored(node: ast.AST) -> set[str]:
  """Names that `node` binds, and those whose items or attributes it sets."""
  names: set[str] = set()
  for child in walk(node):
    if isinstance(child, ast.Name | ast.Attribute | ast.Subscript):
      names.add('' if isinstance(child.ctx, ast.Load) else root(child)[0] or '')
    elif isinstance(child, (ast.FunctionDef, ast.ClassDef)):
      names.add(child.name)
    elif isinstance(child, ast.arg):
      names.add(child.arg)
    elif isinstance(child, ast.alias):
      names.add((child.asname or child.name).partition('.')[0])
  return names - {''}


def loaded(node: ast.AST) -> set[str]:
  """Names that `node` reads."""
  names: set[str] = set()
  for child in walk(node):
    if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Load):
      names.add(child.id)
    elif isinstance(child, ast.AugAssign):
      names.add(root(child.target)[0] or '')
  return names
