"""APPS: 10,000 problems of programming contests and interviews.

Hendrycks et al., "Measuring Coding Challenge Competence With APPS", arXiv
2105.09938. The files are `train.jsonl` and `test.jsonl` of `codeparrot/apps` on
the Hugging Face hub; `data.path` is the folder in which they lie.

Problems with a function (`fn_name`) are checked by its calls. The others read
standard input and print: `standard_input.py` makes tests of them. An output of
APPS may be the right value in a list of its own, and tuples are lists there:
where it leaves that open, either passes. What is printed is compared by words.
"""

from __future__ import annotations

import ast
import collections
import dataclasses
import json
import logging
import pathlib
import random
import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from promptrl_jax.prompts import parsing
from promptrl_jax.tasks import literals, standard_input
from promptrl_jax.tasks.benchmark import Benchmark, Row
from promptrl_jax.tasks.json_lines import DataError
from promptrl_jax.tasks.task_set import SPLITS, DataConfig, TaskSet
from promptrl_jax.types import Task, UnitTests

DIFFICULTIES = ('introductory', 'interview', 'competition')
_CLASS = 'Solution'
_FIELDS = {
  **{'problem_id': int, 'question': str, 'solutions': str},
  **{'input_output': str, 'difficulty': str, 'starter_code': str},
}
FILES = {
  part: Benchmark(
    name='APPS',
    layouts=(_FIELDS,),
    hub='codeparrot/apps',
    file=f'{part}.jsonl',
    key='problem_id',
    is_file=True,
  )
  for part in ('train', 'test')
}


@dataclasses.dataclass(frozen=True)
class Options:
  """Settings of the task set `apps`.

  Attributes:
    difficulty: one of `DIFFICULTIES`; empty for all.
    validation_share: part of `train.jsonl` that is drawn for validation.
    seed: of the draw.
    longest_test: characters of a test; longer ones are left out.
  """

  difficulty: str = ''
  validation_share: float = 0.1
  seed: int = 0
  longest_test: int = 10_000

  def __post_init__(self):
    if self.difficulty not in ('', *DIFFICULTIES):
      raise ValueError(
        f'difficulty={self.difficulty!r}: expected one of '
        f'{", ".join(DIFFICULTIES)}, or nothing for all'
      )
    if not 0 <= self.validation_share < 1:
      raise ValueError(
        f'validation_share={self.validation_share}: expected a share of the '
        'training file, 0 or more and less than 1'
      )
    if self.longest_test < 1:
      raise ValueError(
        f'longest_test={self.longest_test}: expected 1 character or more'
      )


class _UnusableError(ValueError):
  """A problem cannot be a task; the message is a reason to be counted."""


def load(split: str, config: DataConfig) -> tuple[Task, ...]:
  """Loads the tasks of a split; says how many problems are left out.

  Raises:
    DataError: a file is missing or malformed, or the split is unknown or empty.
  """
  if split not in SPLITS:
    raise DataError(f'split {split!r}: APPS has {", ".join(SPLITS)}')
  options: Options = config.options
  part = 'test' if split == 'test' else 'train'
  rows = FILES[part].read(_path(config, part))
  if part == 'train':
    rows = _drawn(rows, split, options)
  chosen = [
    (where, row)
    for where, row in rows
    if options.difficulty in ('', row['difficulty'])
  ]
  tasks, reasons = [], collections.Counter()
  for where, row in chosen:
    try:
      tasks.append(to_task(row, where, part, options.longest_test))
    except _UnusableError as error:
      reasons[str(error)] += 1
  if reasons:
    logging.getLogger(__name__).warning(
      '%d of %d problems of %s are left out: %s',
      reasons.total(),
      len(chosen),
      split,
      '; '.join(f'{count} {reason}' for reason, count in reasons.items()),
    )
  if not tasks:
    raise DataError(
      f'{config.path or FILES[part].hub} has no usable problem for the split '
      f'{split!r}'
    )
  return tuple(tasks)


def digest(config: DataConfig) -> str:
  """Short hashes of the files that are there, and of how they are drawn from.

  Raises:
    DataError: there is neither of them.
  """
  found = [
    f'{part} {benchmark.digest(path)}'
    for part, benchmark in FILES.items()
    if not (path := _path(config, part)) or pathlib.Path(path).is_file()
  ]
  if not found:
    _path(config, 'test', required=True)
  options = dataclasses.asdict(config.options)
  changed = {
    name: value
    for name, value in options.items()
    if value != getattr(Options(), name)
  }
  return ' + '.join(found) + ''.join(f', {k}={v}' for k, v in changed.items())


def _path(config: DataConfig, part: str, required: bool = False) -> str:
  """The file of a part; empty for the hub."""
  if not config.path:
    return ''
  folder = pathlib.Path(config.path)
  files = [folder / f'{part}.jsonl', folder / f'{part}.jsonl.gz']
  found = next((file for file in files if file.is_file()), None)
  if found is None and (required or not folder.is_dir()):
    raise DataError(
      f'{folder} is no folder with {part}.jsonl: give the folder in which the '
      'files of APPS lie with --config.data.path'
    )
  return str(found or files[0])


def _drawn(rows: Sequence[Row], split: str, options: Options) -> list[Row]:
  """The rows of a split of the training file, in the order of the file."""
  order = list(range(len(rows)))
  random.Random(f'apps/{options.seed}').shuffle(order)
  count = round(options.validation_share * len(rows))
  places = order[:count] if split == 'validation' else order[count:]
  return [rows[place] for place in sorted(places)]


def to_task(
  row: Mapping[str, Any], where: str, part: str, longest: int
) -> Task:
  """Converts one row of a file; `where` names it in errors.

  Raises:
    _UnusableError: it has no tests, or none that can be run.
    DataError: a field does not hold what it should.
  """
  cases = _json(row, 'input_output', where, dict)
  solutions = _json(row, 'solutions', where, list)
  if not cases.get('inputs'):
    raise _UnusableError('have no tests')
  inputs, outputs = cases['inputs'], cases.get('outputs')
  if not isinstance(outputs, list) or len(inputs) != len(outputs):
    raise DataError(
      f'{where}: input_output must have as many outputs as inputs, got '
      f'{len(inputs)} inputs'
    )
  name = cases.get('fn_name')
  statement = row['question'].strip()
  if name:
    checker, reference = _call_based(row, name, inputs, outputs, solutions)
  else:
    tests = tuple(
      standard_input.test(_text(given), _text(expected))
      for given, expected in zip(inputs, outputs, strict=True)
    )
    checker = UnitTests(
      standard_input.ENTRY_POINT,
      standard_input.SIGNATURE,
      tests,
      standard_input.SETUP,
    )
    converted = map(standard_input.to_function, map(str, solutions))
    reference = next((code for code in converted if code), '')
    statement = f'{statement}\n\n{standard_input.NOTE}'
  # The same example stands in some files twice.
  tests = tuple(t for t in dict.fromkeys(checker.tests) if len(t) <= longest)
  if not tests:
    raise _UnusableError(f'have no test of at most {longest} characters')
  return Task(
    task_id=f'apps/{part}/{row["problem_id"]}',
    statement=statement,
    checker=dataclasses.replace(checker, tests=tests),
    reference=reference,
  )


def _json(row: Mapping[str, Any], field: str, where: str, kind: type) -> Any:
  """The value of a field that holds JSON; empty if the field is."""
  if not row[field].strip():
    return kind()
  try:
    value = json.loads(row[field])
  except json.JSONDecodeError as error:
    raise DataError(f'{where}: {field} is not JSON: {error}') from error
  except ValueError:  # Python reads no decimal number of 5,000 digits.
    raise _UnusableError('have a number that is too long to be read') from None
  if not isinstance(value, kind):
    raise DataError(
      f'{where}: {field} must hold a JSON {kind.__name__}, got '
      f'{type(value).__name__}'
    )
  return value


def _text(value: Any) -> str:
  """An input or output of a program that reads and prints: text, or lines."""
  if isinstance(value, list):
    return '\n'.join(map(str, value))
  return str(value)


# Problems with a function.


def _call_based(
  row: Mapping[str, Any],
  name: str,
  inputs: Sequence[Any],
  outputs: Sequence[Any],
  solutions: Sequence[Any],
) -> tuple[UnitTests, str]:
  """The checker of a problem with a function, and its first solution."""
  if not all(isinstance(arguments, list) for arguments in inputs):
    raise _UnusableError('have inputs that are no lists of arguments')
  parsed = [s for s in map(str, solutions) if parsing.parse_or_none(s)]
  starter = row['starter_code']
  in_class = f'class {_CLASS}' in (starter or (parsed or [''])[0])
  entry_point, function = name, name
  if in_class:
    entry_point, function = _CLASS, f'{_CLASS}().{name}'
  signature = _signature([starter, *parsed], name, in_class)
  wrapped = all(isinstance(o, list) and len(o) == 1 for o in outputs)
  tests = tuple(
    f'assert {function}({literals.arguments(map(_restored, arguments))}) '
    f'{_right(_restored(expected), wrapped)}'
    for arguments, expected in zip(inputs, outputs, strict=True)
  )
  reference = parsed[0].strip() if parsed else ''
  if header := _typing(reference):
    reference = f'{header}\n\n{reference}'
  return UnitTests(entry_point, signature, tests), reference


def _right(expected: Any, wrapped: bool) -> str:
  """The end of a test: the value, or any of those that the data may mean.

  Args:
    expected: an output of the file.
    wrapped: all outputs of the problem are lists of one item.
  """
  values = [expected]
  if wrapped:
    values = [expected[0], expected]
  if isinstance(values[0], list):
    values.insert(1, tuple(values[0]))
  if len(values) == 1:
    return f'== {literals.literal(expected)}'
  return f'in ({literals.arguments(values)})'


def _restored(value: Any) -> Any:
  """A dict whose keys were numbers before they were JSON."""
  if not isinstance(value, dict):
    return value
  try:
    return {int(key): item for key, item in value.items()}
  except ValueError:
    return value


def _signature(sources: Sequence[str], name: str, in_class: bool) -> str:
  """How a program begins, from the first source that says it."""
  for source in sources:
    # Starter code ends in a function without a body.
    for code in (source, f'{source.rstrip()}\n{" " * 8}pass'):
      if found := _header(parsing.parse_or_none(code), name, in_class):
        return found
  if in_class:
    return f'class {_CLASS}:\n  def {name}(self, *args):'
  return f'def {name}(*args):'


def _header(tree: ast.Module | None, name: str, in_class: bool) -> str:
  """The line of the function, below its class and what its types need."""
  for node in _functions(tree, in_class):
    if node.name == name:
      line = f'def {name}({ast.unparse(node.args)})'
      line += f' -> {ast.unparse(node.returns)}:' if node.returns else ':'
      imports = _typing(f'{line}\n  pass')
      if in_class:
        line = f'class {_CLASS}:\n  {line}'
      return f'{imports}\n\n\n{line}' if imports else line
  return ''


def _functions(
  tree: ast.Module | None, in_class: bool
) -> Iterator[ast.FunctionDef]:
  body: Sequence[ast.stmt] = tree.body if tree else ()
  if in_class:
    classes = [n for n in body if isinstance(n, ast.ClassDef)]
    body = next((c.body for c in classes if c.name == _CLASS), ())
  return (node for node in body if isinstance(node, ast.FunctionDef))


def _typing(code: str) -> str:
  """The import of the types that code names and does not import."""
  tree = parsing.parse_or_none(code)
  if tree is None:
    return ''
  nodes = list(ast.walk(tree))
  names = {node.id for node in nodes if isinstance(node, ast.Name)}
  bound = {
    a.name for n in nodes if isinstance(n, ast.ImportFrom) for a in n.names
  }
  if '*' in bound:
    return ''
  used = sorted((names & set(typing.__all__)) - bound)
  return f'from typing import {", ".join(used)}' if used else ''


TASK_SET = TaskSet(load=load, digest=digest, options=Options)
