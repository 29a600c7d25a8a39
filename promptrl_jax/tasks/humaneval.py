"""HumanEval: 164 functions to write from their signature and docstring.

Chen et al., "Evaluating Large Language Models Trained on Code", arXiv
2107.03374. The file is `data/HumanEval.jsonl.gz` of openai/human-eval.

The docstring is the statement; what stands above it in the prompt (imports,
helper functions, the `def` line) is the signature, with which programs begin.
The docstring may show examples that are also tests.

HumanEval has a test split alone. What is trained or chosen comes from MBPP, if
`Options.mbpp` says where that is; otherwise there is no other split.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from promptrl_jax.execution import syntax
from promptrl_jax.prompts import parsing
from promptrl_jax.tasks import check_function, mbpp
from promptrl_jax.tasks.benchmark import Benchmark, Row
from promptrl_jax.tasks.json_lines import DataError
from promptrl_jax.tasks.task_set import SPLITS, DataConfig, TaskSet
from promptrl_jax.types import Task, UnitTests

FIELDS = {
  **{'task_id': str, 'prompt': str, 'entry_point': str},
  **{'canonical_solution': str, 'test': str},
}
HUMANEVAL = Benchmark(
  name='HumanEval',
  layouts=(FIELDS,),
  hub='openai/openai_humaneval',
  file='HumanEval.jsonl',
  versions={'1d49078ba3e2b196': '2021-07'},
)
_MBPP_ON_HUB = 'hub'


@dataclasses.dataclass(frozen=True)
class Options:
  """Settings of the task sets `humaneval` and `humaneval_plus`.

  Attributes:
    mbpp: file of MBPP, `mbpp.jsonl`, whose splits `train` and `validation` are
      used, as HumanEval has none; `hub` downloads it; empty: there are none.
  """

  mbpp: str = ''


def task_set(
  benchmark: Benchmark, convert: Callable[[Sequence[Row]], tuple[Task, ...]]
) -> TaskSet:
  """Returns the task set of a benchmark that has HumanEval's problems.

  Args:
    benchmark: its rows.
    convert: rows -> their tasks.
  """

  def load(split: str, config: DataConfig) -> tuple[Task, ...]:
    if split == 'test':
      return convert(benchmark.read(config.path))
    if split not in SPLITS:
      raise DataError(f'split {split!r}: {benchmark.name} has test')
    if not config.options.mbpp:
      raise DataError(
        f'{benchmark.name} has no split {split!r}, all of its problems are for '
        'test: take train and validation from MBPP with '
        '--config.data.options.mbpp=mbpp.jsonl (`hub` downloads it), or load '
        'the split test alone'
      )
    return mbpp.load(split, _mbpp_path(config))

  def digest(config: DataConfig) -> str:
    text = benchmark.digest(config.path)
    if config.options.mbpp:
      text += f' + mbpp {mbpp.MBPP.digest(_mbpp_path(config))}'
    return text

  def few_shots(config: DataConfig) -> tuple[Task, ...]:
    if not config.options.mbpp:
      return ()
    return mbpp.few_shots(_mbpp_path(config))

  return TaskSet(load=load, digest=digest, options=Options, few_shots=few_shots)


def to_tasks(rows: Sequence[Row]) -> tuple[Task, ...]:
  """Converts rows to tasks."""
  return tuple(to_task(row, where) for where, row in rows)


def to_task(row: Mapping[str, Any], where: str) -> Task:
  """Converts one row to a `Task`; `where` names the row in errors."""
  if 'plus_input' in row:
    raise DataError(
      f'{where}: the row is one of HumanEval+: expected {HUMANEVAL.file}, or '
      '--config.data.name=humaneval_plus'
    )
  try:
    tests = check_function.of_function(row['test'], row['entry_point'])
  except ValueError as error:
    raise DataError(f'{where}: {row["task_id"]}: {error}') from error
  return from_prompt(row, where, tests)


def from_prompt(
  row: Mapping[str, Any], where: str, tests: tuple[str, ...]
) -> Task:
  """Returns the task of a prompt, its solution and its tests.

  Args:
    row: has the fields `task_id`, `prompt`, `entry_point` and
      `canonical_solution`, the body of the function.
    where: location for errors.
    tests: as of `UnitTests`.

  Raises:
    DataError: the prompt is not a function with a docstring.
  """
  prompt, name = row['prompt'], row['entry_point']
  program = f'{prompt}{row["canonical_solution"]}'
  function = _function(program, name)
  if function is None:
    raise DataError(
      f'{where}: {row["task_id"]}: prompt and canonical_solution must make a '
      f'program that defines {name}'
    )
  statement = _docstring(function)
  if not statement:
    raise DataError(f'{where}: {row["task_id"]}: {name} has no docstring')
  lines = program.split('\n')
  above = '\n'.join(lines[: function.lineno - 1]).strip('\n')
  signature = '\n'.join(lines[: function.body[0].lineno - 1]).strip('\n')
  return Task(
    task_id=row['task_id'],
    statement=statement,
    checker=UnitTests(
      entry_point=name,
      signature=signature,
      tests=tests,
      setup=_helpers(above, tests),
    ),
    reference=program.strip('\n'),
    split='test',
  )


def _function(program: str, name: str) -> ast.FunctionDef | None:
  module = parsing.parse_or_none(program)
  for node in module.body if module else ():
    if isinstance(node, ast.FunctionDef) and node.name == name:
      return node
  return None


def _docstring(function: ast.FunctionDef) -> str:
  """The first text of the body: HumanEval/115 imports a module before it."""
  for statement in function.body:
    match statement:
      case ast.Expr(value=ast.Constant(value=str(text))):
        return inspect.cleandoc(text)
  return ''


def _helpers(above: str, tests: tuple[str, ...]) -> str:
  """What stands above the function, if tests call a function of it."""
  module = parsing.parse(above)
  defined = {s.name for s in module.body if isinstance(s, ast.FunctionDef)}
  used = set().union(*(syntax.loaded(parsing.parse(test)) for test in tests))
  return above if defined & used else ''


def _mbpp_path(config: DataConfig) -> str:
  path = config.options.mbpp
  return '' if path == _MBPP_ON_HUB else path


TASK_SET = task_set(HUMANEVAL, to_tasks)
