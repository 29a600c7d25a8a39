"""Plain values as source code in which `inf` and `nan` have a literal."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterable
from typing import Any

_NAN = "float('nan')"
_INFINITE = float('inf')  # `ast.unparse` writes it as 1e309.


def arguments(values: Iterable[Any]) -> str:
  """Returns values as the arguments of a call: `1, [2]`."""
  return ', '.join(map(literal, values))


def arguments_of(node: ast.expr) -> str:
  """Returns the items of a list or tuple in source code, as `arguments` does.

  Raises:
    ValueError: the node is no list or tuple.
  """
  if not isinstance(node, (ast.List, ast.Tuple)):
    raise ValueError(f'an input must be a list, got {ast.unparse(node)[:60]}')
  return ', '.join(ast.unparse(_Floats().visit(item)) for item in node.elts)


def literal(value: Any) -> str:
  """Returns one value in source code."""
  if isinstance(value, float) and not math.isfinite(value):
    return _NAN if math.isnan(value) else ast.unparse(ast.Constant(value))
  if isinstance(value, dict):
    items = (f'{literal(k)}: {literal(v)}' for k, v in value.items())
    return f'{{{", ".join(items)}}}'
  if isinstance(value, (list, tuple, set)) and value:
    items = ', '.join(map(literal, value))
    if isinstance(value, tuple):
      return f'({items},)' if len(value) == 1 else f'({items})'
    return f'[{items}]' if isinstance(value, list) else f'{{{items}}}'
  return repr(value)


def of_repr(text: str) -> str | None:
  """Returns the `repr` of a value as a literal; None if it has none."""
  try:
    tree = _Floats().visit(ast.parse(text, mode='eval').body)
    source = ast.unparse(tree)
    ast.literal_eval(source)
  except (SyntaxError, ValueError, RecursionError, MemoryError):
    return None
  return source


class _Floats(ast.NodeTransformer):
  """Replaces the names `inf` and `nan`, which are no literals."""

  def visit_Name(self, node: ast.Name) -> ast.expr:
    if node.id == 'inf':
      return ast.copy_location(ast.Constant(_INFINITE), node)
    if node.id == 'nan':
      return ast.parse(_NAN, mode='eval').body
    return node
