"""Splits a test into calls that the program evaluates and code for the judge.

In `assert set(f([1, 1])) == {1}` the call `f([1, 1])` is evaluated by the
program's process and everything else by the judge, which receives a plain
value. The judge runs the test itself, with each call of the program replaced
by a request, so `and`, loops and comprehensions work as written:

  _equal_(0, set(_value_(0, {})), {1})     calls[0].source == 'f([1, 1])'

A call belongs to the program if it starts from a name that is not a builtin,
not a known module and not bound by the test. Statements that only let the
program create or change something (`tree = Node(1)`, `tree.left = Node(2)`,
`sort_in_place(items)`) run in the program's process, and the names that they
bind or change are read from there afterwards. Every other call receives copies
of the judge's values, so its changes to them are lost.

Methods of plain data, such as `get`, are called by the judge on a plain value,
never on an object of the program, which could return anything.

Tests are trusted. The judge offers them few names (`names.py`) to keep honest
mistakes harmless; that is not a sandbox.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import types

from promptrl_jax.execution import items as items_lib
from promptrl_jax.execution import names as names_lib
from promptrl_jax.execution import syntax


class CannotSplitError(ValueError):
  """The test cannot be judged; the message says why."""


class NeedsTesterError(CannotSplitError):
  """The test is valid, but only a tester process can run it."""


@dataclasses.dataclass(frozen=True)
class RemoteCall:
  """An expression that the program's process evaluates.

  It starts from the name `root`, which the program must have defined.
  """

  source: str
  root: str


@dataclasses.dataclass(frozen=True)
class Step:
  """One statement of a test.

  Attributes:
    remote: source that the program's process runs, or None.
    names: names bound by the judge that `remote` uses.
    local: code that the judge runs after `remote`, or None.
    items: (name in `remote`, expression that the judge evaluates for it).
  """

  remote: str | None
  names: tuple[str, ...]
  local: types.CodeType | None
  items: tuple[tuple[str, types.CodeType], ...] = ()


@dataclasses.dataclass(frozen=True)
class Plan:
  """A test after splitting.

  In `Step.local`, `_value_(i, names)` and `_stub_(i)` request call `i`, and
  `_check_(i, value)` or `_equal_(i, left, right)` stands for the assertion
  whose source is check `i`.
  """

  steps: tuple[Step, ...]
  calls: tuple[RemoteCall, ...]
  checks: tuple[str, ...]


@functools.lru_cache(maxsize=4096)
def split(test: str, setup: str = '', entry_point: str | None = None) -> Plan:
  """Splits one test; see `Program` for the arguments.

  Raises:
    CannotSplitError: the test does not parse, has no assertion, calls no
      function of the program, or uses names that the judge does not offer.
  """
  try:
    test = syntax.dedented(test)
    plan = _Splitter(entry_point).split(setup.strip(), test)
    if not plan.calls and entry_point is None:
      builtin = _called_builtin(test)  # MBPP 126 tests one called `sum`.
      plan = _Splitter(builtin).split(setup.strip(), test)
  except CannotSplitError:
    raise
  except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
    raise CannotSplitError(f'the test does not parse: {error}') from None
  if not plan.calls:
    raise CannotSplitError('the test calls no function of the program')
  return plan


def _called_builtin(test: str) -> str | None:
  for check in ast.walk(ast.parse(test)):
    if isinstance(check, ast.Assert):
      for node in ast.walk(check.test):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
          return node.func.id
  return None


class _Splitter(syntax.Rewriter):
  """Processes statements in order and tracks in which process names live."""

  def __init__(self, entry_point: str | None):
    self._entry_point = entry_point
    self._called: frozenset[str] = frozenset()  # Names of modules.
    self._bound: set[str] = set()  # Bound in the judge.
    self._remote: set[str] = set()  # Created by the program in its process.
    self._foreign: set[str] = set()  # In that process, created by the test.
    self._shared: set[str] = set()  # Bound in both processes: never sent.
    self._code: set[str] = set()  # Functions and modules: cannot be sent.
    self._asking: set[str] = set()  # Functions of the test that need calls.
    self._calls: list[RemoteCall] = []
    self._checks: list[str] = []
    self._lines: list[bytes] = []  # Of the test; empty if positions are unsafe.

  def split(self, setup_source: str, test_source: str) -> Plan:
    setup, test = ast.parse(setup_source), ast.parse(test_source)
    facts = [syntax.facts(statement) for statement in test.body]
    if not any(ast.Assert in of_one.kinds for of_one in facts):
      raise CannotSplitError('the test holds no assert')
    # A module cannot be called, so `copy(x)` is a function of the program.
    called = set().union(*(of_one.called for of_one in facts))
    self._called = names_lib.MODULES & called
    # Setup has run in the program's process. If the test uses its names, the
    # judge runs those statements of it that it can run.
    prepared: list[Step] = []
    for statement in setup.body:
      of_one = syntax.facts(statement)
      try:
        prepared.append(Step(None, (), self._step(statement, of_one).local))
        self._shared |= of_one.stored & self._bound
      except CannotSplitError:
        self._move(of_one.stored, self._foreign)
    if not any(self._bound & of_one.loaded for of_one in facts):
      prepared = []
      self._calls = []
      self._checks = []
    if not set(test_source) & set('\r\f'):
      self._lines = test_source.encode().split(b'\n')
    steps = list(map(self._step, test.body, facts))
    steps = self._without_secrets(test.body, steps)
    return Plan((*prepared, *steps), tuple(self._calls), tuple(self._checks))

  def _without_secrets(
    self, body: list[ast.stmt], steps: list[Step]
  ) -> list[Step]:
    """Withholds functions of the test that the program does not need.

    A function that computes the expected value could be found and called by the
    program.
    """
    if not any(step.remote and step.local for step in steps):
      return steps
    own = [
      i
      for i, statement in enumerate(body)
      if steps[i].local
      and not isinstance(statement, ast.Import | ast.ImportFrom)
    ]
    sources = [call.source for call in self._calls]
    sources += [s.remote or '' for i, s in enumerate(steps) if i not in own]
    needed = set().union(*(syntax.loaded(ast.parse(s)) for s in sources))
    kept: set[int] = set()
    while more := {
      i for i in own if i not in kept and syntax.stored(body[i]) & needed
    }:
      kept |= more
      needed |= set().union(*(syntax.loaded(body[i]) for i in more))
    return [
      dataclasses.replace(step, remote=None)
      if i in own and i not in kept
      else step
      for i, step in enumerate(steps)
    ]

  def _step(self, statement: ast.stmt, facts: syntax.Facts) -> Step:
    """Decides where a statement runs and updates where its names live."""
    stored, loaded = set(facts.stored), facts.loaded
    asserts = ast.Assert in facts.kinds
    is_code = ast.Lambda in facts.kinds or isinstance(
      statement, ast.Import | ast.ImportFrom | ast.FunctionDef
    )  # Functions and modules, which both processes need.
    sent = (loaded & self._bound) - self._shared
    if isinstance(statement, ast.ClassDef) or syntax.is_foreign_import(
      statement
    ):
      return self._remotely(statement, sent, stored, self._foreign)
    asks = self._asks(stored, loaded)
    if not hasattr(statement, 'body') and not asserts:
      if asks and self._is_only_program(statement):
        if isinstance(statement, ast.Expr):  # It runs for its side effects.
          stored |= sent
        else:
          return self._make_remotely(statement, sent, stored)
        return self._remotely(statement, sent, stored, self._remote)
      if not asks and loaded & self._foreign:
        return self._remotely(statement, sent, stored, self._foreign)
      if not stored.isdisjoint(loaded & self._remote):
        raise NeedsTesterError(f'too involved: {ast.unparse(statement)}')
    self._move(stored, self._bound)
    if isinstance(statement, ast.Expr):  # `items.append(1)`
      stored |= loaded
    self._shared -= stored - self._code
    if asks or asserts or not is_code:
      if isinstance(statement, ast.FunctionDef):
        self._asking.add(statement.name)
      return Step(None, (), self._compile(statement))
    self._code |= stored
    self._shared |= stored
    remote = ast.unparse(statement)
    local = self._compile(statement)
    return Step(remote, tuple(sorted(sent - stored)), local)

  def _remotely(
    self, statement: ast.stmt, sent: set[str], stored: set[str], home: set[str]
  ) -> Step:
    self._move(stored, home)
    self._shared -= stored
    return Step(ast.unparse(statement), tuple(sorted(sent)), None)

  def _make_remotely(
    self, statement: ast.stmt, sent: set[str], stored: set[str]
  ) -> Step:
    items = items_lib.Items(sent - stored)
    statement = items.visit(statement)
    step = self._remotely(
      statement, sent & syntax.loaded(statement), stored, self._remote
    )
    taken = tuple(
      (name, compile(ast.unparse(node), '<test>', 'eval', dont_inherit=True))
      for name, node in items.taken.items()
    )
    return dataclasses.replace(step, items=taken)

  def _move(self, names: set[str], home: set[str]) -> None:
    for place in (self._bound, self._remote, self._foreign):
      place -= names
    home |= names

  def _compile(self, statement: ast.stmt) -> types.CodeType:
    module = ast.Module([self.visit(statement)], [])
    return compile(module, '<test>', 'exec', dont_inherit=True)

  def _asks(self, stored: set[str], loaded: set[str]) -> bool:
    """Whether a statement needs the program or an object of the program."""
    return any(
      self._is_programs(name) or name in self._asking
      for name in loaded - (stored - self._remote)
    )

  def _is_programs(self, name: str) -> bool:
    if name in self._remote or name == self._entry_point:
      return True
    if name in self._bound or name in self._foreign or name.startswith('__'):
      return False
    return name in self._called or name not in names_lib.known()

  def _is_only_program(self, statement: ast.stmt) -> bool:
    """Whether a statement only lets the program create or change something.

    `ok = f(1) == 2` does more: the program's process must not see the 2, and
    its value of `ok` would be a verdict.
    """
    if isinstance(statement, ast.Expr):
      return self._is_whole(statement.value)
    if isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign):
      return statement.value is not None and self._is_made(statement.value)
    return False

  def _is_made(self, node: ast.expr) -> bool:
    if isinstance(node, ast.Constant | ast.Name):
      return True
    if isinstance(node, ast.List | ast.Tuple | ast.Set):
      return all(self._is_made(item) for item in node.elts)
    if isinstance(node, ast.Dict):
      return all(k and self._is_made(k) for k in node.keys) and all(
        self._is_made(value) for value in node.values
      )
    if isinstance(node, ast.ListComp):
      return self._is_made(node.elt) and not any(
        self._is_programs(name)
        for loop in node.generators
        for name in syntax.loaded(loop)
      )
    return self._is_whole(node)

  def _is_whole(self, node: ast.expr) -> bool:
    """Whether only the program can evaluate it: `f(1)`, `Tree().root`."""
    if not isinstance(node, ast.Call | ast.Attribute):
      return False
    head = node.func if isinstance(node, ast.Call) else node
    inner = head.value if isinstance(head, ast.Attribute) else head
    root, crosses = syntax.root(inner)
    if root is None or not self._is_programs(root):
      return False
    of_value = crosses or root in self._remote
    if isinstance(head, ast.Attribute) and of_value:
      return head.attr not in names_lib.PLAIN_ATTRIBUTES
    return of_value or isinstance(node, ast.Call)

  # The methods below rewrite a statement for the judge.

  def visit_Assert(self, node: ast.Assert) -> ast.Expr:
    check = ast.Constant(len(self._checks), **syntax.PLACE)
    self._checks.append(self._text(node.test))
    shape = node.test
    if (
      isinstance(shape, ast.Compare)
      and len(shape.ops) == 1
      and isinstance(shape.ops[0], ast.Eq)
    ):
      sides = [self.visit(shape.left), self.visit(shape.comparators[0])]
      return ast.Expr(_call('_equal_', check, *sides), **syntax.PLACE)
    return ast.Expr(_call('_check_', check, self.visit(shape)), **syntax.PLACE)

  def visit_Call(self, node: ast.Call) -> ast.AST:
    if self._is_whole(node):
      return self._ask(node)
    if isinstance(node.func, ast.Name) and node.func.id in self._asking:
      args, node.args = node.args, []  # `check(f)`
      self.generic_visit(node)
      node.args = [self._stub(arg) or self.visit(arg) for arg in args]
      return node
    return self.generic_visit(node)

  def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
    if not isinstance(node.ctx, ast.Load):
      raise NeedsTesterError(f'the test sets the attribute {node.attr!r}')
    if self._is_whole(node):
      return self._ask(node)
    if node.attr.startswith('_'):
      raise NeedsTesterError(f'the test uses the attribute {node.attr!r}')
    return self.generic_visit(node)

  def visit_Name(self, node: ast.Name) -> ast.AST:
    name = node.id
    if name.startswith('__'):
      raise NeedsTesterError(f'the test uses the name {name!r}')
    if not isinstance(node.ctx, ast.Load):
      return node
    if name in self._remote:
      return self._ask(node)
    if name == self._entry_point:
      return self._stub(node) or node
    if name not in self._bound and name not in names_lib.offered():
      raise NeedsTesterError(f'the judge does not know the name {name!r}')
    return node

  def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
    lines, self._lines = self._lines, []  # Positions inside are not reliable.
    self.generic_visit(node)
    self._lines = lines
    return node

  def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
    raise NeedsTesterError(f'the test defines the class {node.name!r}')

  def visit_Try(self, node: ast.Try) -> ast.AST:
    raise NeedsTesterError('the test catches exceptions')

  def _text(self, node: ast.expr) -> str:
    """The source of an expression; unparsing takes ten times as long."""
    if self._lines and node.lineno == node.end_lineno:
      line = self._lines[node.lineno - 1]
      return line[node.col_offset : node.end_col_offset].decode()
    return ast.unparse(node)

  def _ask(self, node: ast.expr) -> ast.expr:
    root, _ = syntax.root(node)
    assert root is not None
    used = self._bound - self._shared
    taken: dict[str, ast.expr] = {}
    if used:
      items = items_lib.Items(used - syntax.stored(node))
      node, taken = items.visit(node), items.taken
      used = (used & syntax.loaded(node)) - syntax.stored(node)
    source = ast.unparse(node) if taken else self._text(node)
    self._calls.append(RemoteCall(source, root))
    bound = {n: ast.Name(n, ast.Load(), **syntax.PLACE) for n in sorted(used)}
    bound |= taken
    keys = [ast.Constant(name, **syntax.PLACE) for name in bound]
    names = ast.Dict(list(keys), list(bound.values()), **syntax.PLACE)
    index = ast.Constant(len(self._calls) - 1, **syntax.PLACE)
    return _call('_value_', index, names)

  def _stub(self, node: ast.expr) -> ast.expr | None:
    if not isinstance(node, ast.Name) or not self._is_programs(node.id):
      return None
    if node.id in self._remote:  # An object that the program created.
      return None
    self._calls.append(RemoteCall(node.id, node.id))
    return _call('_stub_', ast.Constant(len(self._calls) - 1, **syntax.PLACE))


def _call(name: str, *args: ast.expr) -> ast.Call:
  function = ast.Name(name, ast.Load(), **syntax.PLACE)
  return ast.Call(function, list(args), [], **syntax.PLACE)
