"""Tests for inputs whose right outputs are those of a reference program.

EvalPlus stores inputs alone: a program is right if it returns what the
reference returns, within a tolerance for floats. A few tasks of it accept more
than that, because the task says less than the reference does.

A test holds the reference under another name. It is judged where the program
cannot read it (`docs/sandbox.md`), and never shown.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterable
from typing import Any

from promptrl_jax.tasks import check_function

_REFERENCE = '_right_'
_ATOL = 1e-6  # EvalPlus's tolerance for floats, where a task names none.
_RTOL = 1e-7  # Relative to the right output.

# Every name ends in an underscore, so that the reference has no such name.
_COMPARISON = """\
def close_(out, right, atol):
  if isinstance(right, (list, tuple)):
    return len(out) == len(right) and all(
      close_(o, r, atol) for o, r in zip(out, right))
  return out == right or abs(out - right) <= atol + {rtol} * abs(right)
def is_right_(out, right, args):
  parts = right if isinstance(right, (list, tuple)) and right else [right]
  atol = {atol} or all(isinstance(p, float) for p in parts) and {default}
  if {accepts}:
    return True
  return bool(atol) and type(out) == type(right) and close_(out, right, atol)
"""
_EXACT = 'out == right'
# Lists of which the task does not say the order.
_AS_SETS = frozenset(
  [
    *('similar_elements', 'find_char_long', 'common_in_nested_lists'),
    *('extract_singly', 'larg_nnum', 'intersection_array'),
    *('find_dissimilar', 'Diff'),
  ]
)
# What else EvalPlus accepts, by function: an expression of the program's output
# `out`, the reference's output `right` and the arguments `args`.
_ACCEPTED = {
  **dict.fromkeys(_AS_SETS, 'set(out) == set(right)'),
  # Patterns are searched for: a match counts as True, none as False.
  **dict.fromkeys(
    ('check_str', 'text_match_three', 'text_starta_endb'),
    '(out if isinstance(out, bool) else out is not None)'
    ' == (right is not None)',
  ),
  # Mbpp/164: the reference counts divisors, the statement sums them.
  'are_equivalent': 'True',
  # Mbpp/295: of the divisors of a number, the number itself may be left out.
  'sum_div': 'out == right or out == 0',
  # Mbpp/581: the height may be that of the sides, or of the pyramid.
  'surface_Area': (
    'out == right or abs(out - round(args[0] ** 2 + 2 * args[0]'
    ' * ((args[0] / 2) ** 2 + args[1] ** 2) ** 0.5)) <= atol'
  ),
  # Mbpp/558: the digits of the numbers may be compared one by one.
  'digit_distance_nums': (
    'out == right or out == sum(abs(int(a) - int(b)) for a, b in zip('
    '*[str(n).zfill(max(map(len, map(str, args)))) for n in args]))'
  ),
}
# HumanEval/32: any root will do.
_ROOT = 'find_zero'
_IS_ROOT = """\
coefficients_, root_ = {coefficients}, {call}
assert abs(sum(c * root_ ** i for i, c in enumerate(coefficients_))) <= {atol}
"""
_ROOT_ATOL = 1e-4


def tests(
  entry_point: str, reference: str, inputs: Iterable[str], atol: float
) -> tuple[str, ...]:
  """Returns one test for each input.

  Args:
    entry_point: the function under test.
    reference: a program that defines it.
    inputs: arguments as they stand in a call, `1, [2]`; see `source`.
    atol: absolute tolerance of EvalPlus; 0: for floats alone.

  Raises:
    ValueError: the reference does not parse.
  """
  if entry_point == _ROOT:
    return tuple(_root_test(arguments, atol) for arguments in inputs)
  right = check_function.renamed(reference, entry_point, _REFERENCE)
  comparison = _COMPARISON.format(
    rtol=_RTOL,
    atol=atol,
    default=_ATOL,
    accepts=_ACCEPTED.get(entry_point, _EXACT),
  )
  return tuple(
    f'{right}\n{comparison}args_ = [{arguments}]\n'
    f'assert is_right_({entry_point}(*args_), {_REFERENCE}(*args_), args_)'
    for arguments in inputs
  )


def as_sets(entry_point: str, assertions: Iterable[str]) -> tuple[str, ...]:
  """Returns base assertions that compare sets where the order is open."""
  if entry_point not in _AS_SETS:
    return tuple(assertions)
  return tuple(map(_as_set, assertions))


def source(arguments: Iterable[Any]) -> str:
  """Returns plain values as the arguments of a call."""
  return ', '.join(map(_literal, arguments))


def arguments_source(node: ast.expr) -> str:
  """Returns the items of a list or tuple in source code, as `source` does.

  Raises:
    ValueError: the node is no list or tuple.
  """
  if not isinstance(node, (ast.List, ast.Tuple)):
    raise ValueError(f'an input must be a list, got {ast.unparse(node)[:60]}')
  return ', '.join(ast.unparse(_Floats().visit(item)) for item in node.elts)


class _Floats(ast.NodeTransformer):
  """Replaces the names `inf` and `nan`, which tests do not know."""

  def visit_Name(self, node: ast.Name) -> ast.expr:
    if node.id in ('inf', 'nan'):
      return ast.parse(f'float({node.id!r})', mode='eval').body
    return node


def _literal(value: Any) -> str:
  if isinstance(value, float) and not math.isfinite(value):
    return f'float({str(value)!r})'
  if isinstance(value, dict):
    items = (f'{_literal(k)}: {_literal(v)}' for k, v in value.items())
    return f'{{{", ".join(items)}}}'
  if isinstance(value, (list, tuple, set)) and value:
    items = ', '.join(map(_literal, value))
    if isinstance(value, tuple):
      return f'({items},)' if len(value) == 1 else f'({items})'
    return f'[{items}]' if isinstance(value, list) else f'{{{items}}}'
  return repr(value)


def _as_set(assertion: str) -> str:
  module = ast.parse(assertion)
  match module.body[-1]:
    case ast.Assert(test=ast.Compare(left=left, ops=[ast.Eq()])) as check:
      if not (isinstance(left, ast.Call) and ast.unparse(left.func) == 'set'):
        compare = check.test
        assert isinstance(compare, ast.Compare)
        compare.left, right = _set_of(left), _set_of(compare.comparators[0])
        compare.comparators = [right]
  return ast.unparse(module)


def _set_of(node: ast.expr) -> ast.expr:
  return ast.Call(ast.Name('set', ast.Load()), [node], [])


def _root_test(arguments: str, atol: float) -> str:
  return _IS_ROOT.format(
    coefficients=arguments,
    call=f'{_ROOT}({arguments})',
    atol=atol or _ROOT_ATOL,
  )
