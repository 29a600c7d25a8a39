"""Checks one assertion that a model wrote, by its syntax tree.

Model-written tests are untrusted code. Assertions on values of the function
under test are accepted, everything else is refused:

  assert sorted(f([3, 1] * 2)) == [1, 1, 3, 3]
                ^^^^^^^^^^^^^   the call: evaluated where the program runs
         ^^^^^^^             ^^^^^^^^^^^^^^^^^   the rest: where it is judged

Arguments may be any expression of plain data. The rest must need little time
and memory for any value of the call: no loops, no methods, no arithmetic with
large results. This is a filter and not a sandbox. It refuses 15 of MBPP's 2,938
tests.
"""

from __future__ import annotations

import ast

from promptrl_jax.prompts import parsing

MAX_LENGTH = 1000  # Characters; three tests of MBPP are longer.
MAX_COUNT = 10_000  # Largest argument of `range` and factor of `*`.
_MAX_POWER = 1000

BUILTINS = frozenset(
  builtin.__name__
  for builtin in (
    *(bool, complex, dict, float, frozenset, int, list, set, str, tuple, type),
    *(abs, all, any, isinstance, len, max, min, repr, round, sorted, sum),
    *(enumerate, range, reversed, zip),
  )
)
_MATH = frozenset(
  ('e', 'inf', 'isclose', 'isfinite', 'isinf', 'isnan', 'nan', 'pi', 'sqrt')
)
# These methods read attributes that are named in a string.
_FORMATTING = ('format', 'format_map')

_ARGUMENT_NODES = (
  *(ast.Constant, ast.Name, ast.Attribute, ast.Subscript, ast.Slice),
  *(ast.List, ast.Tuple, ast.Set, ast.Dict, ast.Starred),
  *(ast.UnaryOp, ast.BinOp, ast.BoolOp, ast.Compare, ast.IfExp),
  *(ast.Call, ast.keyword, ast.Lambda, ast.arguments, ast.arg),
  *(ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp),
  *(ast.comprehension, ast.expr_context),
  *(ast.operator, ast.unaryop, ast.boolop, ast.cmpop),
)


_JUDGED_NODES = (
  *(ast.List, ast.Tuple, ast.Set, ast.Dict, ast.UnaryOp, ast.BoolOp),
  *(ast.Compare, ast.Subscript, ast.Slice),
)


class InvalidTestError(ValueError):
  """The text is not an acceptable test; the message says why."""


def normalise(source: str, entry_point: str) -> str:
  """Returns the normal form of an assertion, equal for equal syntax trees.

  It has no redundant spaces, brackets and comments, one style of quotes, and no
  message after the comma. Each condition of the assertion (there are several
  with `and`, `or`) must call `entry_point` by its name.

  Raises:
    InvalidTestError: the text does not parse, is not one `assert`, does not
      depend on the function, or uses what a test does not need.
  """
  if len(source) > MAX_LENGTH:
    raise InvalidTestError(
      f'has {len(source)} characters; expected at most {MAX_LENGTH}'
    )
  try:
    body = parsing.parse(source.strip()).body
    if len(body) != 1 or not isinstance(body[0], ast.Assert):
      raise InvalidTestError('is not exactly one assert statement')
    _check_condition(body[0].test, entry_point)
    return ast.unparse(ast.Assert(body[0].test))
  except InvalidTestError:
    raise
  except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
    raise InvalidTestError(f'does not parse: {error}') from None


def _check_condition(node: ast.expr, name: str) -> None:
  """Each condition must be able to fail: `(f(1), 'why')` is always true."""
  if isinstance(node, ast.BoolOp):
    for value in node.values:
      _check_condition(value, name)
    return
  if isinstance(node, (ast.List, ast.Tuple, ast.Set, ast.Dict)):
    raise InvalidTestError('asserts a literal container')
  if not any(_calls(child, name) for child in ast.walk(node)):
    raise InvalidTestError(f'has a condition that does not call {name}')
  _check_judged(node, name)


def _calls(node: ast.AST, name: str) -> bool:
  return (
    isinstance(node, ast.Call)
    and isinstance(node.func, ast.Name)
    and node.func.id == name
  )


def _check_judged(node: ast.AST, name: str) -> None:
  """Checks an expression that the judging process evaluates."""
  match node:
    case ast.Call() if _calls(node, name):
      for part in (*node.args, *(k.value for k in node.keywords)):
        _check_argument(part, name)
    case ast.Call():
      _check_builtin_call(node, name)
    case ast.BinOp():
      _check_arithmetic(node, name)
    case ast.Attribute(value=ast.Name(id='math'), attr=attr) if attr in _MATH:
      pass
    case ast.Constant():
      pass
    case ast.Name(id=used):
      _check_name(used, BUILTINS - {name})
    case ast.Dict() if None in node.keys:
      raise InvalidTestError('unpacks a dict')
    case _ if isinstance(node, _JUDGED_NODES):
      for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr):
          _check_judged(child, name)
    case _:
      raise InvalidTestError(
        f'uses {type(node).__name__} outside of the arguments of {name}'
      )


def _check_builtin_call(node: ast.Call, name: str) -> None:
  if any(keyword.arg is None for keyword in node.keywords):
    raise InvalidTestError('unpacks a dict')
  for part in (node.func, *node.args, *(k.value for k in node.keywords)):
    _check_judged(part, name)
  # `round(5, -10**9)` computes 10 to that power.
  first = {'range': 0, 'round': 1}.get(ast.unparse(node.func))
  if first is None:
    return
  sizes = node.args[first:]
  if node.keywords or not all(_is_count(n, MAX_COUNT) for n in sizes):
    raise InvalidTestError(
      f'{ast.unparse(node)!r}: expected numbers of at most {MAX_COUNT}'
    )


def _check_arithmetic(node: ast.BinOp, name: str) -> None:
  if _is_number(node):
    return
  if isinstance(node.op, ast.Mult):
    sides = (node.left, node.right), (node.right, node.left)
    if not any(_is_flat(a) and _is_count(b, MAX_COUNT) for a, b in sides):
      raise InvalidTestError(f'multiplies what may be large: {_short(node)}')
  elif isinstance(node.op, (ast.Pow, ast.Mod, ast.LShift, ast.MatMult)):
    raise InvalidTestError(f'computes what may be large: {_short(node)}')
  _check_judged(node.left, name)
  _check_judged(node.right, name)


def _is_number(node: ast.expr) -> bool:
  """Whether this is a number, or arithmetic with a small result."""
  match node:
    case ast.Constant(value=value):
      return type(value) in (int, float, complex)
    case ast.UnaryOp(operand=operand):
      return _is_number(operand)
    case ast.BinOp(op=ast.Pow()):
      return _is_count(node.left, MAX_COUNT) and _is_count(
        node.right, _MAX_POWER
      )
    case ast.BinOp(
      op=ast.Add() | ast.Sub() | ast.Mult() | ast.Div() | ast.FloorDiv()
    ):
      return _is_number(node.left) and _is_number(node.right)
  return False


def _is_count(node: ast.expr, largest: int) -> bool:
  """Whether this is a literal number of bounded size."""
  if isinstance(node, ast.UnaryOp):
    node = node.operand
  return (
    isinstance(node, ast.Constant)
    and isinstance(node.value, int | float)
    and abs(node.value) <= largest
  )


def _is_flat(node: ast.expr) -> bool:
  """Whether this is a literal without repetitions of its own."""
  return not any(
    isinstance(child, (ast.BinOp, ast.Call)) for child in ast.walk(node)
  )


def _check_argument(node: ast.expr, name: str) -> None:
  """Checks an argument, which the program's own process evaluates."""
  nodes = list(ast.walk(node))
  bound = {
    n.id
    for n in nodes
    if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)
  } | {n.arg for n in nodes if isinstance(n, ast.arg)}
  if name in bound:
    raise InvalidTestError(f'gives another meaning to {name}')
  for child in nodes:
    if not isinstance(child, _ARGUMENT_NODES):
      raise InvalidTestError(f'uses {type(child).__name__} in an argument')
    if isinstance(child, ast.Name):
      _check_name(child.id, BUILTINS | bound | {name})
    if isinstance(child, ast.Attribute) and (
      child.attr.startswith('_') or child.attr in _FORMATTING
    ):
      raise InvalidTestError(f'uses the attribute {child.attr!r}')


def _check_name(used: str, allowed: frozenset[str] | set[str]) -> None:
  if used not in allowed or used.startswith('__'):
    raise InvalidTestError(f'uses the name {used!r}')


def _short(node: ast.expr) -> str:
  return repr(ast.unparse(node)[:80])
