"""Helpers that inspect and rewrite the syntax tree of a test."""

from __future__ import annotations

import ast
import dataclasses
import textwrap
from typing import Any

from promptrl_jax.execution import names as names_lib


def dedented(source: str) -> str:
  """Removes common indentation and surrounding blank lines."""
  if source[:1].isspace():
    source = textwrap.dedent(source)
  return source.strip()


# Position of new nodes; `ast.fix_missing_locations` would visit all others too.
PLACE: Any = {
  'lineno': 1,
  'col_offset': 0,
  'end_lineno': 1,
  'end_col_offset': 0,
}
# Types that `walk` leaves out: constants, of which a test mostly consists,
# contexts, and values of fields that are no nodes.
_LEAVES = {ast.Constant, ast.Load, ast.Store, ast.Del, int, str, type(None)}


def walk(node: ast.AST) -> list[ast.AST]:
  """`node` and all nodes below it, without constants and contexts.

  Takes a quarter of the time of `ast.walk`.
  """
  nodes = [node]
  for parent in nodes:
    for value in vars(parent).values():
      kind = type(value)
      if kind is list:
        nodes += [item for item in value if type(item) not in _LEAVES]
      elif kind not in _LEAVES and isinstance(value, ast.AST):
        nodes.append(value)
  return nodes


class Rewriter(ast.NodeTransformer):
  """A `NodeTransformer` that does not visit constants."""

  def generic_visit(self, node: ast.AST) -> ast.AST:
    fields = vars(node)
    for name, value in fields.items():
      kind = type(value)
      if kind is list:
        value[:] = [
          item if type(item) in _LEAVES else self.visit(item) for item in value
        ]
      elif kind not in _LEAVES and isinstance(value, ast.AST):
        fields[name] = self.visit(value)
    return node


def root(node: ast.expr) -> tuple[str | None, bool]:
  """Name at the start of a chain, and whether the chain has a call or index."""
  crosses = False
  while isinstance(node, (ast.Attribute, ast.Call, ast.Subscript)):
    crosses |= not isinstance(node, ast.Attribute)
    node = node.func if isinstance(node, ast.Call) else node.value
  return (node.id if isinstance(node, ast.Name) else None), crosses


def is_foreign_import(statement: ast.stmt) -> bool:
  """Whether a statement imports modules that the judge does not offer."""
  if isinstance(statement, ast.ImportFrom):
    modules = [statement.module or '']
  elif isinstance(statement, ast.Import):
    modules = [alias.name for alias in statement.names]
  else:
    return False
  return not all(module in names_lib.MODULES for module in modules)


@dataclasses.dataclass(frozen=True)
class Facts:
  """Names in a node and all nodes below it, and the types of the nodes.

  Names whose items or attributes are set count as stored.
  """

  stored: set[str]
  loaded: set[str]
  called: set[str]
  kinds: set[type[ast.AST]]


def facts(node: ast.AST) -> Facts:
  """Collects the facts in one pass over the nodes."""
  nodes = walk(node)
  stored, loaded, called = set(), set(), set()
  for child in nodes:
    match child:
      case ast.Name(id=name, ctx=ast.Load()):
        loaded.add(name)
      case ast.Call(func=ast.Name(id=name)):
        called.add(name)
      case ast.Name() | ast.Attribute() | ast.Subscript():
        if not isinstance(child.ctx, ast.Load):
          stored.add(root(child)[0])
      case ast.FunctionDef() | ast.ClassDef():
        stored.add(child.name)
      case ast.arg(arg=name):
        stored.add(name)
      case ast.alias():
        stored.add((child.asname or child.name).partition('.')[0])
      case ast.AugAssign(target=target):
        loaded.add(root(target)[0])
  kinds = set(map(type, nodes))
  return Facts(stored - {None}, loaded - {None}, called, kinds)


def stored(node: ast.AST) -> set[str]:
  """Names that are bound; see `Facts`."""
  return facts(node).stored


def loaded(node: ast.AST) -> set[str]:
  """Names that are read; see `Facts`."""
  return facts(node).loaded
