"""One task of a user's own: a statement, and a file of assertions."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from promptrl_jax.prompts.entry_point import entry_point
from promptrl_jax.types import Task, UnitTests

_NAMES = 'abcdefghij'


def to_task(
  statement: str, source: str, where: str = 'tests', signature: str = ''
) -> Task:
  """Makes a task of a statement and the source of a Python file.

  Each `assert` at the top level is a test, in the order of the file; what else
  stands there (imports, helpers) runs before them.

  Args:
    statement: what the program is to do.
    source: of the assertions.
    where: name of the file, for errors.
    signature: first line of the program; empty: made of the calls in the
      tests.

  Raises:
    ValueError: there is no statement or no assertion, or the source does not
      parse; says where.
  """
  if not statement.strip():
    raise ValueError(
      f'statement {statement!r}: expected what to write, in words'
    )
  try:
    body = ast.parse(source).body
  except (SyntaxError, ValueError) as error:
    line = getattr(error, 'lineno', None)
    raise ValueError(f'{where}:{line or 1}: no Python ({error})') from error
  tests = [_text(source, node) for node in body if isinstance(node, ast.Assert)]
  setup = [
    _text(source, node) for node in body if not isinstance(node, ast.Assert)
  ]
  if not tests:
    raise ValueError(
      f'{where} has no assertion at the top level: expected lines such as '
      '"assert add(1, 2) == 3"'
    )
  name = entry_point(tests)
  signature = signature.strip() or _signature(tests, name)
  if not signature.startswith(f'def {name}(') or not signature.endswith(':'):
    raise ValueError(
      f'signature {signature!r}: expected "def {name}(...):", which the tests '
      'call'
    )
  checker = UnitTests(name, signature, tuple(tests), '\n'.join(setup))
  return Task(f'own/{name}', statement.strip(), checker, 'test')


def _text(source: str, node: ast.stmt) -> str:
  lines = source.splitlines(keepends=True)
  first = min([node.lineno, *(d.lineno for d in _decorators(node))])
  return ''.join(lines[first - 1 : node.end_lineno]).rstrip()


def _decorators(node: ast.stmt) -> Sequence[ast.expr]:
  return getattr(node, 'decorator_list', ())


def _signature(tests: Sequence[str], name: str) -> str:
  """One parameter for each argument, if all calls have as many."""
  calls = [call for test in tests for call in _calls(test, name)]
  shapes = {(len(call.args), *(k.arg for k in call.keywords)) for call in calls}
  has_stars = any(
    isinstance(arg, ast.Starred) for call in calls for arg in call.args
  )
  if len(shapes) != 1 or has_stars or len(calls[0].args) > len(_NAMES):
    return f'def {name}(*args, **kwargs):'
  ((count, *keywords),) = shapes
  if None in keywords:
    return f'def {name}(*args, **kwargs):'
  names = [n for n in _NAMES if n not in keywords][:count]
  return f'def {name}({", ".join([*names, *map(str, keywords)])}):'


def _calls(test: str, name: str) -> Iterator[ast.Call]:
  for node in ast.walk(ast.parse(test)):
    if (
      isinstance(node, ast.Call)
      and isinstance(node.func, ast.Name)
      and node.func.id == name
    ):
      yield node
