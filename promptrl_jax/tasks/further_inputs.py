"""Tests for inputs whose right outputs are those of a reference program.

EvalPlus stores inputs alone: a program is right if it returns what the
reference returns, within a tolerance for floats. A few tasks of it accept more
than that, because the task says less than the reference does.

A test holds the right output, or the reference under another name where the
output is too long. Neither reaches the program (`docs/sandbox.md`).
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence

from promptrl_jax.tasks import check_function
from promptrl_jax.tasks.right_outputs import Output, Reference

_REFERENCE = '_right_'
_ATOL = 1e-6  # EvalPlus's tolerance for floats, where a task names none.
_RTOL = 1e-7  # Relative to the right output.

# Names that a reference hardly has, as both may stand in one test.
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
    *('extract_singly', 'larg_nnum', 'find_dissimilar', 'Diff'),
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
  reference: Reference, outputs: Sequence[Output], atol: float
) -> tuple[str, ...]:
  """Returns a test for each input whose output can be judged.

  Args:
    reference: the right program and its inputs.
    outputs: what it returns for them.
    atol: absolute tolerance of EvalPlus; 0: for floats alone.

  Raises:
    ValueError: the reference does not parse.
  """
  name, atol = reference.entry_point, float(atol)
  if name == _ROOT:
    atol = atol or _ROOT_ATOL
    return tuple(
      _IS_ROOT.format(coefficients=a, call=f'{name}({a})', atol=atol)
      for a in reference.inputs
    )
  comparison = _COMPARISON.format(
    rtol=_RTOL,
    atol=atol,
    default=_ATOL,
    accepts=_ACCEPTED.get(name, _EXACT),
  )
  is_exact = not atol and name not in _ACCEPTED
  computed = check_function.renamed(reference.code, name, _REFERENCE)

  def test(arguments: str, right: str | None) -> str:
    if right is None:
      above, right = f'{computed}\n{comparison}', f'{_REFERENCE}(*args_)'
    elif is_exact and not _may_be_floats(right):
      return f'assert {name}({arguments}) == {right}'
    else:
      above = comparison
    return (
      f'{above}args_ = [{arguments}]\n'
      f'assert is_right_({name}(*args_), {right}, args_)'
    )

  pairs = zip(reference.inputs, outputs, strict=True)
  return tuple(test(a, out.source) for a, out in pairs if out.judged)


def _may_be_floats(right: str) -> bool:
  """Whether a literal is a float, or a list or tuple of floats."""
  value = ast.literal_eval(right)
  parts = value if isinstance(value, (list, tuple)) and value else [value]
  return all(isinstance(part, float) for part in parts)


def as_sets(entry_point: str, assertions: Iterable[str]) -> tuple[str, ...]:
  """Returns base assertions that compare sets where the order is open."""
  if entry_point not in _AS_SETS:
    return tuple(assertions)
  return tuple(map(_as_set, assertions))


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
