"""What a rewrite must not hold: code, copied assertions, data of tests.

A rewriter that is rewarded by tests can earn the reward without saying what the
program should do: it may write the program itself, repeat the tests, or name
what they pass and expect. Each function here says whether a text does.

What the statement says already is no leak, nor is a value that the reference
has as a constant: "return 'odd'" belongs to the task.
"""

from __future__ import annotations

import ast
import builtins
import dataclasses
import functools
import keyword
import re
import warnings
from collections.abc import Iterator, Sequence

from promptrl_jax.types import Task

_TOKEN = re.compile(
  r"""'[^'\n]*'|"[^"\n]*"|[A-Za-z_]\w*|\d+(?:\.\d+)?|==|!=|<=|>=|//|\*\*|\S"""
)
_SCALAR = re.compile(r"""'[^'\n]*'|"[^"\n]*"|(?<![\w.])-?\d+(?:\.\d+)?(?!\w)""")
# Marks of prose, which do not make a run of tokens look like code.
_PROSE = frozenset(',.:;!?-"\'')
_ARITHMETIC = frozenset([*'+-*/%(),.', '**', '//'])
_KNOWN_NAMES = frozenset([*dir(builtins), *keyword.kwlist])
# Syntax that no statement in words has.
_SYNTAX = re.compile(
  r'```|~~~|\[/?PYTHON\]|</?code>'
  r'|\bdef\s+\w+\s*\(|\bclass\s+\w+\s*[(:]|\blambda\b[\w\s,]*:'
  r'|(?:^|\n)\s*import\s+\w|\bfrom\s+[\w.]+\s+import\b'
  r'|(?:^|\n|;)\s*[A-Za-z_]\w*\s*=(?!=)\s*\S|\w\s*(?:[-+*/%]|//)=\s*\w'
  r'|\w\s*=(?!=)[^\n]*\breturn\b',
  re.IGNORECASE,
)
_HEADER = re.compile(r'\b(?:for|while|if)[\s(][^:\n]{1,200}:')
_RETURN = re.compile(r'\breturn\b\s*(?=\S)')
_CALL = re.compile(r'(?<!\w)[A-Za-z_][\w.]*\(')
_OPEN = {'(': ')', '[': ']', '{': '}'}
_LONGEST_EXPRESSION = 200  # characters
# A run of this many tokens of the reference, so many of them operators or
# brackets, is copied: prose about a problem shares shorter ones with it.
_RUN, _MARKS = 6, 3
# A value with so many digits, letters or parts is not met by chance.
_DIGITS, _LETTERS, _PARTS = 3, 4, 3

Scalars = tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class _Case:
  """Scalars of the arguments and of the expected value of one assertion."""

  arguments: Scalars
  expected: Scalars


def has_code(text: str, task: Task) -> bool:
  """Whether `text` holds Python, or a piece of the task's reference.

  Names are no hiding place: a piece of the reference is found with its own
  variables renamed.
  """
  return (
    bool(_SYNTAX.search(text))
    or any(_is_header(match.group()) for match in _HEADER.finditer(text))
    or _returns_code(text, task.statement)
    or any(_is_code(part) for part in _expressions(text))
    or not _runs(text).isdisjoint(
      _reference_runs(task.reference) - _runs(task.statement)
    )
  )


def has_assertion(text: str, task: Task) -> bool:
  """Whether `text` asserts something, or calls the function on data."""
  if re.search(r'\bassert\b[^\n]*(?:[=!<>]=|[<>]|\bis\b|\()', text):
    return True
  call = re.compile(rf'(?<!\w){re.escape(task.entry_point)}\s*\(')
  return any(
    _is_literal_call(found)
    for match in call.finditer(text)
    if (found := _bracketed(text, match.end() - 1, match.start()))
    and found not in task.statement
  )


def has_test_data(
  text: str, task: Task, visible_tests: Sequence[str] = ()
) -> bool:
  """Whether `text` names what a hidden test passes or expects.

  Either data that is not met by chance (a number of three digits, four letters,
  three parts), or arguments of a test with its value after them.
  """
  found = _scalars(text)
  given = {
    *_scalars(task.statement),
    *_constants(task.reference),
    *(s for test in visible_tests for s in _scalars(test)),
  }
  for case in _cases(task.tests, task.entry_point):
    for data in (case.arguments, case.expected):
      if given.issuperset(data) or not _is_telling(data):
        continue
      if _occurs(data, found, text):
        return True
    if given.issuperset(case.expected):
      continue
    place = _find(case.arguments, found) if case.arguments else -1
    if place >= 0 and len(case.arguments + case.expected) >= _PARTS:
      rest = found[place + len(case.arguments) :]
      if _find(case.expected, rest) >= 0:
        return True
  return False


# --- Code ---------------------------------------------------------------------


def _parse(source: str) -> ast.expr | None:
  try:
    with warnings.catch_warnings():
      warnings.simplefilter('ignore')
      return ast.parse(source.strip(), mode='eval').body
  except (SyntaxError, ValueError, RecursionError, MemoryError):
    return None


def _is_code(source: str) -> bool:
  """An expression that computes in more than one step."""
  tree = _parse(source)
  if tree is None:
    return False
  nodes = list(ast.walk(tree))
  loops = (ast.comprehension, ast.Lambda)
  if any(isinstance(node, loops) for node in nodes):
    return True
  calls = sum(isinstance(node, ast.Call) for node in nodes)
  steps = (ast.Subscript, ast.Attribute, ast.BinOp, ast.IfExp)
  more = any(isinstance(node, steps) for node in nodes)
  return calls > 1 or (calls == 1 and more)


def _expressions(text: str) -> Iterator[str]:
  """Calls and bracketed parts, outermost first."""
  for match in _CALL.finditer(text):
    yield _bracketed(text, match.end() - 1, match.start())
  for match in re.finditer(r'[(\[{]', text):
    yield _bracketed(text, match.start(), match.start())


def _bracketed(text: str, opening: int, start: int) -> str:
  """From `start` to the bracket that closes the one at `opening`, or ''."""
  closing: list[str] = []
  for place in range(opening, min(len(text), opening + _LONGEST_EXPRESSION)):
    mark = text[place]
    if mark in _OPEN:
      closing.append(_OPEN[mark])
    elif closing and mark == closing[-1]:
      closing.pop()
      if not closing:
        return text[start : place + 1]
  return ''


def _is_header(source: str) -> bool:
  """The first line of a loop or a condition: `for x in nums:`."""
  try:
    with warnings.catch_warnings():
      warnings.simplefilter('ignore')
      ast.parse(f'{source} pass')
  except (SyntaxError, ValueError, RecursionError, MemoryError):
    return False
  return True


def _returns_code(text: str, statement: str) -> bool:
  """A `return` with an expression behind it that is more than a name."""
  for match in _RETURN.finditer(text):
    words = text[match.end() :][:_LONGEST_EXPRESSION].split('\n', 1)[0].split()
    for count in range(1, len(words) + 1):
      source = ' '.join(words[:count]).rstrip('.;,')
      if _is_result(source) and f'return {source}' not in statement:
        return True
  return False


def _is_result(source: str) -> bool:
  """An expression that computes, not words that happen to parse as one."""
  tree = _parse(source)
  match tree:
    case ast.Call() | ast.Subscript() | ast.IfExp() | ast.JoinedStr():
      return True
    case ast.Compare(ops=ops):
      # "return those in which", "return whatever is left"
      words = (ast.In, ast.NotIn, ast.Is, ast.IsNot)
      return not all(isinstance(op, words) for op in ops)
    case ast.BinOp():
      # "non-negative" would be a difference.
      return bool(re.search(r'\s[-+*/%]+\s', source))
  return tree is not None and _is_code(source)


def _runs(text: str) -> set[tuple[str, ...]]:
  """Runs of tokens that look like code, own names and strings made alike."""
  tokens = [_alike(token) for token in _TOKEN.findall(text)]
  windows = zip(*(tokens[i:] for i in range(_RUN)), strict=False)
  return {
    run for run in windows if _marks(run) >= _MARKS and not _is_formula(run)
  }


def _is_formula(run: tuple[str, ...]) -> bool:
  """Only arithmetic, which words may need: "the number n * (n - 1) / 2"."""
  return all(
    token in _ARITHMETIC or token == 'a name' or token[0].isdigit()
    for token in run
  )


def _alike(token: str) -> str:
  if token[0] in '\'"' and len(token) > 1:
    return 'a string'
  if token.isidentifier() and token not in _KNOWN_NAMES:
    return 'a name'
  return token


def _marks(run: tuple[str, ...]) -> int:
  return sum(
    len(token) <= 2 and not token.isalnum() and token not in _PROSE
    for token in run
  )


@functools.lru_cache(maxsize=4096)
def _reference_runs(reference: str) -> frozenset[tuple[str, ...]]:
  return frozenset(_runs(reference))


# --- Assertions and values ----------------------------------------------------


def _is_literal_call(source: str) -> bool:
  tree = _parse(source)
  if not isinstance(tree, ast.Call) or not (tree.args or tree.keywords):
    return False
  return all(_is_literal(part) for part in tree.args)


def _is_literal(node: ast.expr) -> bool:
  try:
    ast.literal_eval(node)
  except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
    return False
  return True


@functools.lru_cache(maxsize=4096)
def _cases(tests: tuple[str, ...], name: str) -> tuple[_Case, ...]:
  """Arguments and value of each `assert ... name(arguments) ... == value`."""
  cases = []
  for test in tests:
    try:
      with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        tree = ast.parse(test.strip())
    except (SyntaxError, ValueError):
      continue
    for node in ast.walk(tree):
      if isinstance(node, ast.Compare) and _is_literal(node.comparators[-1]):
        arguments = next(
          (
            _values(ast.Tuple(call.args))
            for call in ast.walk(node.left)
            if isinstance(call, ast.Call)
            and isinstance(call.func, ast.Name)
            and call.func.id == name
          ),
          (),
        )
        cases.append(_Case(arguments, _values(node.comparators[-1])))
  return tuple(cases)


def _values(tree: ast.AST) -> Scalars:
  """Numbers and strings of a syntax tree, in order, signs included."""
  match tree:
    case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=value)):
      return (repr(-value),) if isinstance(value, int | float) else ()
    case ast.Constant(value=bool() | None):
      return ()
    case ast.Constant(value=int() | float() | str() as value):
      return (repr(value),)
    case ast.Dict(keys=keys, values=values):
      pairs = zip(keys, values, strict=True)
      nodes = [node for pair in pairs for node in pair if node]
    case _:
      nodes = list(ast.iter_child_nodes(tree))
  return tuple(value for node in nodes for value in _values(node))


@functools.lru_cache(maxsize=4096)
def _constants(source: str) -> frozenset[str]:
  try:
    with warnings.catch_warnings():
      warnings.simplefilter('ignore')
      return frozenset(_values(ast.parse(source)))
  except (SyntaxError, ValueError):
    return frozenset()


def _scalars(text: str) -> list[str]:
  """Numbers and quoted strings of a text, written as `_values` does."""
  found = []
  for match in _SCALAR.finditer(text):
    tree = _parse(match.group())
    found += _values(tree) if tree is not None else [match.group()]
  return found


def _is_telling(expected: Scalars) -> bool:
  if len(expected) != 1:
    return len(expected) >= _PARTS
  (value,) = expected
  if value[0] in '\'"':
    return len(ast.literal_eval(value)) >= _LETTERS
  return len(re.findall(r'\d', value.split('e')[0].strip('-0.'))) >= _DIGITS


def _occurs(expected: Scalars, found: Sequence[str], text: str) -> bool:
  if _find(expected, found) >= 0:
    return True
  if len(expected) != 1 or expected[0][0] not in '\'"':
    return False
  # Without quotes, a common word says nothing: "list" may be a result.
  word = ast.literal_eval(expected[0])
  if re.fullmatch(r'[a-z ]*', word) or not word.strip():
    return False
  return bool(re.search(rf'(?<!\w){re.escape(word)}(?!\w)', text))


def _find(part: Sequence[str], whole: Sequence[str]) -> int:
  """Where `part` begins in `whole`, or -1."""
  size = len(part)
  for start in range(len(whole) - size + 1):
    if tuple(whole[start : start + size]) == tuple(part):
      return start
  return -1
