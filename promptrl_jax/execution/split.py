"""Splits a test into what the program computes and what the judge decides.

In `assert set(f([1, 1])) == {1}` the call `f([1, 1])` is evaluated by the
program's process and everything else by the judge, which is given a plain value.
The judge runs the test itself, with each call of the program replaced by a
request, so `and`, loops and comprehensions work as written:

  _equal_(0, set(_value_(0, {})), {1})     calls[0].source == 'f([1, 1])'

Which calls are the program's: those of a name, or chain of attributes, that is
no builtin, no known module and not bound by the test. Simple statements that
need the program's objects (`tree = Node(1)`, `tree.left = Node(2)`,
`sort_in_place(items)`) run in the program's process, and the names that they
bind or change are read from there afterwards.

Tests are trusted. That the judge offers them few names (`names.py`) keeps honest
mistakes from doing harm; it is no prison.
"""

from __future__ import annotations

import ast
import copy
import dataclasses
import functools
import textwrap
import types

from promptrl_jax.execution import names as names_lib


class CannotSplitError(ValueError):
  """The test cannot be judged; the text says why."""


@dataclasses.dataclass(frozen=True)
class Call:
  """An expression of the program.

  Attributes:
    source: its text, for the program's process to evaluate.
    root: the name that it starts from, which the program must have defined.
  """

  source: str
  root: str


@dataclasses.dataclass(frozen=True)
class Step:
  """One statement of a test.

  Attributes:
    remote: what the program's process runs, or None.
    names: names bound by the judge that `remote` uses.
    local: what the judge runs after that, or None.
  """

  remote: str | None
  names: tuple[str, ...]
  local: types.CodeType | None


@dataclasses.dataclass(frozen=True)
class Plan:
  """A test, split.

  Attributes:
    steps: statements, in order.
    calls: what `_value_(i, names)` and `_stub_(i)` in `Step.local` stand for.
    checks: source of the assertion that `_check_(i, value)` or
      `_equal_(i, left, right)` in `Step.local` stands for.
  """

  steps: tuple[Step, ...]
  calls: tuple[Call, ...]
  checks: tuple[str, ...]


@functools.lru_cache(maxsize=4096)
def split(test: str, setup: str = '', entry_point: str | None = None) -> Plan:
  """Splits one test.

  Args:
    test: statements with at least one `assert`.
    setup: statements that have run in the program's process before.
    entry_point: function under test; see `Program`.

  Raises:
    CannotSplitError: it does not parse, asserts nothing, calls nothing of the
      program, or uses what the judge does not offer.
  """
  try:
    tree = ast.parse(textwrap.dedent(test).strip())
    before = ast.parse(setup.strip())
    if not _holds(tree, ast.Assert):
      raise CannotSplitError('the test holds no assert')
    plan = _Splitter(entry_point).split(before, tree)
    builtin = None if plan.calls or entry_point else _called_builtin(tree)
    if builtin is not None:  # MBPP 126 tests a function called `sum`.
      plan = _Splitter(builtin).split(before, tree)
  except CannotSplitError:
    raise
  except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
    raise CannotSplitError(f'the test does not parse: {error}') from None
  if not plan.calls:
    raise CannotSplitError('the test calls no function of the program')
  return plan


def _called_builtin(tree: ast.Module) -> str | None:
  for check in ast.walk(tree):
    if isinstance(check, ast.Assert):
      for node in ast.walk(check.test):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
          return node.func.id
  return None


class _Splitter(ast.NodeTransformer):
  """Goes through the statements in order, noting where each name lives."""

  def __init__(self, entry_point: str | None):
    self._entry_point = entry_point
    self._bound: set[str] = set()  # In the judge.
    self._remote: set[str] = set()  # In the program's process, made by it.
    self._foreign: set[str] = set()  # There too, but not made by the program.
    self._shared: set[str] = set()  # Bound in both: need not be sent.
    self._code: set[str] = set()  # Functions and modules: cannot be sent.
    self._asking: set[str] = set()  # Functions of the test that ask for calls.
    self._calls: list[Call] = []
    self._checks: list[str] = []

  def split(self, setup: ast.Module, test: ast.Module) -> Plan:
    # Setup has run in the program's process; the judge runs what it can of it
    # if the test mentions it.
    prepared: list[Step] = []
    for statement in setup.body:
      try:
        local = self._step(statement).local
        prepared.append(Step(None, (), local))
        self._shared |= _stored(statement)
      except CannotSplitError:
        self._make_foreign(statement)
    if not self._bound & _loaded(test):
      prepared = []
    steps = [self._step(statement) for statement in test.body]
    return Plan(
      tuple(prepared + steps), tuple(self._calls), tuple(self._checks)
    )

  def _step(self, statement: ast.stmt) -> Step:
    stored, loaded = _stored(statement), _loaded(statement)
    simple = not hasattr(statement, 'body')
    asks = self._asks(statement)
    sent = (loaded & self._bound) - self._shared
    if isinstance(statement, ast.ClassDef) or _is_foreign_import(statement):
      self._make_foreign(statement)
      return Step(ast.unparse(statement), tuple(sorted(sent)), None)
    if simple and not asks and loaded & self._foreign and not _holds_assert(
      statement
    ):
      self._make_foreign(statement)
      return Step(ast.unparse(statement), tuple(sorted(sent)), None)
    if simple and asks and not _holds_assert(statement):
      if not loaded & self._asking:
        if isinstance(statement, ast.Expr):  # Made for what it changes.
          stored |= sent
        self._move(stored, self._remote)
        return Step(ast.unparse(statement), tuple(sorted(sent)), None)
    self._move(stored, self._bound)
    if isinstance(statement, ast.Expr):  # `items.append(1)`
      stored |= loaded
    self._shared -= stored - self._code
    if asks or _holds_assert(statement) or not _is_code(statement):
      if isinstance(statement, ast.FunctionDef):
        self._asking.add(statement.name)
      return Step(None, (), self._compile(statement))
    self._code |= stored
    self._shared |= stored
    sent = (loaded & self._bound) - self._shared
    local = self._compile(statement)
    return Step(ast.unparse(statement), tuple(sorted(sent)), local)

  def _move(self, names: set[str], home: set[str]) -> None:
    for place in (self._bound, self._remote, self._foreign):
      place -= names
    home |= names
    if home is not self._bound:
      self._shared -= names

  def _make_foreign(self, statement: ast.stmt) -> None:
    self._move(_stored(statement), self._foreign)

  def _compile(self, statement: ast.stmt) -> types.CodeType:
    module = ast.Module([self.visit(copy.deepcopy(statement))], [])
    ast.fix_missing_locations(module)
    return compile(module, '<test>', 'exec', dont_inherit=True)

  def _asks(self, statement: ast.stmt) -> bool:
    """Whether the statement needs the program or what the program made."""
    inner = _stored(statement) - self._remote
    return any(
      name not in inner and (self._is_programs(name) or name in self._asking)
      for name in _loaded(statement)
    )

  def _is_programs(self, name: str) -> bool:
    if name in self._remote or name == self._entry_point:
      return True
    known = self._bound | self._foreign | names_lib.known()
    return name not in known and not name.startswith('__')

  # What follows rewrites the judge's copy of a statement.

  def visit_Assert(self, node: ast.Assert) -> ast.Expr:
    check = ast.Constant(len(self._checks))
    self._checks.append(ast.unparse(node.test))
    shape = node.test
    if (
      isinstance(shape, ast.Compare)
      and len(shape.ops) == 1
      and isinstance(shape.ops[0], ast.Eq)
    ):
      sides = [self.visit(shape.left), self.visit(shape.comparators[0])]
      return ast.Expr(_call('_equal_', check, *sides))
    return ast.Expr(_call('_check_', check, self.visit(shape)))

  def visit_Call(self, node: ast.Call) -> ast.AST:
    root, crosses_call = _root(node.func)
    if root is not None and self._is_programs(root):
      of_value = crosses_call or root in self._remote
      plain = isinstance(node.func, ast.Attribute) and (
        node.func.attr in names_lib.PLAIN_ATTRIBUTES
      )
      if not (of_value and plain):
        return self._ask(node, root)
    if root in self._asking:  # `check(f)`
      args, node.args = node.args, []
      self.generic_visit(node)
      node.args = [self._stub(arg) or self.visit(arg) for arg in args]
      return node
    return self.generic_visit(node)

  def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
    root, crosses_call = _root(node.value)
    if root is not None and node.attr not in names_lib.PLAIN_ATTRIBUTES:
      if root in self._remote or (crosses_call and self._is_programs(root)):
        return self._ask(node, root)
    if node.attr.startswith('_'):
      raise CannotSplitError(f'the test uses the attribute {node.attr!r}')
    return self.generic_visit(node)

  def visit_Name(self, node: ast.Name) -> ast.AST:
    name = node.id
    if name.startswith('__'):
      raise CannotSplitError(f'the test uses the name {name!r}')
    if not isinstance(node.ctx, ast.Load):
      return node
    if name in self._remote:
      return self._ask(node, name)
    if name == self._entry_point:
      return self._stub(node) or node
    if name not in self._bound and name not in names_lib.offered():
      raise CannotSplitError(f'the judge does not know the name {name!r}')
    return node

  def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
    raise CannotSplitError(f'the test defines the class {node.name!r}')

  def visit_Try(self, node: ast.Try) -> ast.AST:
    raise CannotSplitError('the test catches exceptions')

  def _ask(self, node: ast.expr, root: str) -> ast.expr:
    used = (_loaded(node) & self._bound) - self._shared - _stored(node)
    self._calls.append(Call(ast.unparse(node), root))
    keys: list[ast.expr | None] = [ast.Constant(n) for n in sorted(used)]
    values: list[ast.expr] = [ast.Name(n, ast.Load()) for n in sorted(used)]
    index = ast.Constant(len(self._calls) - 1)
    return _call('_value_', index, ast.Dict(keys, values))

  def _stub(self, node: ast.expr) -> ast.expr | None:
    if not isinstance(node, ast.Name) or node.id in self._remote:
      return None
    if not self._is_programs(node.id):
      return None
    self._calls.append(Call(node.id, node.id))
    return _call('_stub_', ast.Constant(len(self._calls) - 1))


def _call(name: str, *args: ast.expr) -> ast.Call:
  return ast.Call(ast.Name(name, ast.Load()), list(args), [])


def _root(node: ast.expr) -> tuple[str | None, bool]:
  """Name at the start of a chain, and whether a call or index lies between."""
  crosses = False
  while isinstance(node, (ast.Attribute, ast.Call, ast.Subscript)):
    crosses |= not isinstance(node, ast.Attribute)
    node = node.func if isinstance(node, ast.Call) else node.value
  return (node.id if isinstance(node, ast.Name) else None), crosses


def _holds(node: ast.AST, kind: type[ast.AST]) -> bool:
  return any(isinstance(child, kind) for child in ast.walk(node))


def _holds_assert(node: ast.AST) -> bool:
  return _holds(node, ast.Assert)


def _is_foreign_import(statement: ast.stmt) -> bool:
  if isinstance(statement, ast.ImportFrom):
    modules = [statement.module or '']
  elif isinstance(statement, ast.Import):
    modules = [alias.name for alias in statement.names]
  else:
    return False
  return not all(module in names_lib.MODULES for module in modules)


def _is_code(statement: ast.stmt) -> bool:
  """Whether it binds functions or modules, which both sides need."""
  kinds = (ast.Import, ast.ImportFrom, ast.FunctionDef)
  return isinstance(statement, kinds) or _holds(statement, ast.Lambda)


def _stored(node: ast.AST) -> set[str]:
  """Names that `node` binds, and those whose items or attributes it sets."""
  names: set[str] = set()
  for child in ast.walk(node):
    if isinstance(child, (ast.Name, ast.Attribute, ast.Subscript)):
      if not isinstance(child.ctx, ast.Load):
        names.add(_root(child)[0] or '')
    elif isinstance(child, (ast.FunctionDef, ast.ClassDef)):
      names.add(child.name)
    elif isinstance(child, ast.arg):
      names.add(child.arg)
    elif isinstance(child, ast.alias):
      names.add((child.asname or child.name).partition('.')[0])
  return names


def _loaded(node: ast.AST) -> set[str]:
  """Names that `node` reads."""
  names: set[str] = set()
  for child in ast.walk(node):
    if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Load):
      names.add(child.id)
    elif isinstance(child, ast.AugAssign):
      names.add(_root(child.target)[0] or '')
  return names
