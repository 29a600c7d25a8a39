"""Programs that read standard input and print, as functions with tests.

  def main():            the program: reads standard input, prints
  printed('3 4')         of SETUP: what `main` prints for this input, in words

A test is `assert printed('3 4') == ['7']`. `printed` runs in the program's
process, like the program; what it returns is compared by the judge. A stream
that the program has bound under another name (`read = sys.stdin.readline`)
follows the input of each test.
"""

from __future__ import annotations

import ast
import symtable

ENTRY_POINT = 'main'
SIGNATURE = 'def main():'
NOTE = (
  'Write a function main() that reads from standard input and prints to '
  'standard output, and do not call it: printed(text) calls it with `text` as '
  'standard input and returns the words that it prints.'
)

SETUP = '''
import io, sys


def _printed(text, main=main):
  """The words that main() prints with `text` as standard input."""
  streams, output = (sys.stdin, sys.stdout), io.BytesIO()
  given = io.BytesIO(text.encode())
  sys.stdin = io.TextIOWrapper(given, encoding='utf-8')
  sys.stdout = io.TextIOWrapper(output, encoding='utf-8', write_through=True)
  try:
    main()
  except SystemExit:
    pass
  finally:
    written = output.getvalue()  # The stream closes it where it ends.
    sys.stdin, sys.stdout = streams
  return written.decode('utf-8', 'replace').split()


class _Stream:
  """A stream of `sys`, whichever stands there when it is used."""

  def __init__(self, get):
    self._get = get

  def __getattr__(self, name):
    return getattr(self._get(), name)

  def __iter__(self):
    return iter(self._get())

  def __next__(self):
    return next(self._get())


def _follow(names):
  streams = {
    id(sys.stdin): _Stream(lambda: sys.stdin),
    id(sys.stdin.buffer): _Stream(lambda: sys.stdin.buffer),
    id(sys.stdout): _Stream(lambda: sys.stdout),
    id(sys.stdout.buffer): _Stream(lambda: sys.stdout.buffer),
  }

  def method(stream, name):
    return lambda *args, **kwargs: getattr(stream, name)(*args, **kwargs)

  for name, value in list(names.items()):
    if id(value) in streams:
      names[name] = streams[id(value)]
    owner = streams.get(id(getattr(value, '__self__', None)))
    if owner is not None:
      names[name] = method(owner, value.__name__)


_follow(globals())
# The judge runs what the setup binds; it has to ask the program for this.
globals()['printed'] = _printed
'''


def test(given: str, expected: str) -> str:
  """The assertion that an input makes the program print these words."""
  return f'assert printed({given!r}) == {expected.split()!r}'


def to_function(script: str) -> str | None:
  """Returns a script as a program with `main`; None if it is none.

  All that the script binds stays global, so that each call of `main` is a run
  of the script.
  """
  try:
    compile(script, '<reference>', 'exec', dont_inherit=True)
    tree, bound = ast.parse(script), _bound(script)
  except (SyntaxError, ValueError, RecursionError):
    return None
  tree = _Plain().visit(tree)
  above = [node for node in tree.body if _stays_above(node)]
  inside = [node for node in tree.body if not _stays_above(node)]
  header = [ast.parse("__name__ = '__main__'").body[0]]
  if bound:
    header = [ast.Global(sorted(bound)), *header]
  main = ast.parse(f'{SIGNATURE}\n  pass').body[0]
  assert isinstance(main, ast.FunctionDef)
  main.body = [*header, *inside]
  module = ast.Module([*above, main], [])
  code = ast.unparse(ast.fix_missing_locations(module))
  try:
    compile(code, '<reference>', 'exec', dont_inherit=True)
  except (SyntaxError, ValueError, RecursionError, MemoryError):
    return None
  return code


def _bound(script: str) -> set[str]:
  """Names that the statements of a script bind at its top level."""
  symbols = symtable.symtable(script, '<reference>', 'exec').get_symbols()
  return {
    s.get_name()
    for s in symbols
    if s.is_assigned() or s.is_imported() or s.is_namespace()
  }


def _stays_above(node: ast.stmt) -> bool:
  """Whether a statement is allowed at the top of a file alone."""
  return isinstance(node, ast.ImportFrom) and (
    node.module == '__future__' or any(a.name == '*' for a in node.names)
  )


class _Plain(ast.NodeTransformer):
  """Drops annotations of names at top level: a global one has none."""

  def visit_Module(self, node: ast.Module) -> ast.Module:
    node.body = [self._plain(child) for child in node.body]
    return node

  def _plain(self, node: ast.stmt) -> ast.stmt:
    if not isinstance(node, ast.AnnAssign):
      return node
    if node.value is None:
      return ast.Pass()
    return ast.Assign([node.target], node.value, lineno=node.lineno)
