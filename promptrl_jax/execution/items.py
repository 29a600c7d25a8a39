"""Separates arguments that the judge evaluates from a call of the program."""

from __future__ import annotations

import ast

from promptrl_jax.execution import syntax


class Items(syntax.Rewriter):
  """Replaces parts of the judge's values, such as `case[0]`, in a call.

  The program receives only the part, because the rest of `case` may be the
  expected value.

  Attributes:
    taken: the replaced expressions, by the name that now stands for them.
  """

  _PLAIN = (
    *(ast.Subscript, ast.Slice, ast.Name, ast.Constant, ast.UnaryOp),
    *(ast.BinOp, ast.unaryop, ast.operator, ast.expr_context),
    *(ast.ListComp, ast.SetComp, ast.DictComp, ast.comprehension),
    *(ast.Tuple, ast.List, ast.Compare, ast.cmpop, ast.BoolOp, ast.boolop),
  )

  def __init__(self, names: set[str]):
    self._names = names
    self.taken: dict[str, ast.expr] = {}

  def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
    root, _ = syntax.root(node)
    return self.generic_visit(node) if root is None else self._take(node, root)

  def visit_ListComp(self, node: ast.ListComp) -> ast.AST:
    return self._take(node, 'list')

  def visit_SetComp(self, node: ast.SetComp) -> ast.AST:
    return self._take(node, 'set')

  def visit_DictComp(self, node: ast.DictComp) -> ast.AST:
    return self._take(node, 'dict')

  def _take(self, node: ast.expr, prefix: str) -> ast.AST:
    free = syntax.loaded(node)
    if not isinstance(node, ast.Subscript):
      free = free - syntax.stored(node)
    plain = all(isinstance(child, self._PLAIN) for child in ast.walk(node))
    if not free or not free <= self._names or not plain:
      return self.generic_visit(node)
    name = f'{prefix}_{len(self.taken)}_'
    self.taken[name] = node
    return ast.Name(name, ast.Load(), **syntax.PLACE)
