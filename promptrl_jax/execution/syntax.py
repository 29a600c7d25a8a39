"""Questions about the syntax tree of a test."""

from __future__ import annotations

import ast
import dataclasses
import textwrap
from typing import Any

from promptrl_jax.execution import names as names_lib


def dedented(source: str) -> str:
  """Statements that stand on the left, without blank lines around them."""
  if source[:1].isspace():
    source = textwrap.dedent(source)
  return source.strip()


# Where new nodes stand; `ast.fix_missing_locations` would visit all others too.
PLACE: Any = {
  'lineno': 1,
  'col_offset': 0,
  'end_lineno': 1,
  'end_col_offset': 0,
}
# What `walk` leaves out, for most of a test is literals; the rest are fields.
_LEAVES = {ast.Constant, ast.Load, ast.Store, ast.Del, int, str, type(None)}


def walk(node: ast.AST) -> list[ast.AST]:
  """`node` and what lies below it, without constants and contexts.

  A quarter of the time of `ast.walk`.
  """
  found = [node]
  for above in found:
    for value in vars(above).values():
      kind = type(value)
      if kind is list:
        found += [item for item in value if type(item) not in _LEAVES]
      elif kind not in _LEAVES and isinstance(value, ast.AST):
        found.append(value)
  return found


class Rewriter(ast.NodeTransformer):
  """Puts one node in the place of another, without a look at constants."""

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
  """Name at the start of a chain, and whether a call or index lies between."""
  crosses = False
  while isinstance(node, (ast.Attribute, ast.Call, ast.Subscript)):
    crosses |= not isinstance(node, ast.Attribute)
    node = node.func if isinstance(node, ast.Call) else node.value
  return (node.id if isinstance(node, ast.Name) else None), crosses


def is_foreign_import(statement: ast.stmt) -> bool:
  """Whether it imports what the judge does not offer."""
  if isinstance(statement, ast.ImportFrom):
    modules = [statement.module or '']
  elif isinstance(statement, ast.Import):
    modules = [alias.name for alias in statement.names]
  else:
    return False
  return not all(module in names_lib.MODULES for module in modules)


@dataclasses.dataclass(frozen=True)
class Facts:
  """What can be told of a node and what lies below it.

  Attributes:
    stored: names that it binds, and those whose items or attributes it sets.
    loaded: names that it reads.
    called: names that it calls.
    kinds: types of the nodes.
  """

  stored: set[str]
  loaded: set[str]
  called: set[str]
  kinds: set[type[ast.AST]]


def facts(node: ast.AST) -> Facts:
  """Looks at each node once."""
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
  """See `Facts`."""
  return facts(node).stored


def loaded(node: ast.AST) -> set[str]:
  """See `Facts`."""
  return facts(node).loaded
