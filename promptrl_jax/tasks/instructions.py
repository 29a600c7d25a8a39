"""Tasks that are given by an instruction and examples, as JSON lines.

A line is one example:

  {"instruction": "...", "input": "...", "output": "...", "task": "qa",
   "template": "{instruction}\\nQuestion: {input}"}

`input`, `task` and `template` may be left out. `output` is a text, or a list of
texts each of which is right. Lines with the same instruction, task and template
are the examples of one `Task`, whose statement is the instruction and whose
checker is `Examples`: one instruction serves all inputs (PRewrite, arXiv
2401.08189). A rewriter is handed the statement alone.
"""

from __future__ import annotations

import dataclasses
import hashlib
import pathlib
import random
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from promptrl_jax.tasks import json_lines
from promptrl_jax.tasks.json_lines import DataError
from promptrl_jax.types import Example, Examples, ProgramExamples, Task

# Kind of task -> the metric that it is reported in.
METRICS = {'qa': 'em', 'classification': 'accuracy', 'math': 'numeric'}
TASKS = tuple(METRICS)
DEFAULT_TASK = 'qa'
DEFAULT_TEMPLATE = '{instruction}\nInput: {input}'
FIELDS = ('instruction', 'input', 'output', 'task', 'template')
_NO_INPUT = '{instruction}'
_PLACE = re.compile(r'\{(instruction|input)\}')
_DIGIT = re.compile(r'[0-9]')
_KINDS = {metric: kind for kind, metric in METRICS.items()}
_CODE = 'code'  # the kind of an instruction for programming tasks


def make_task(
  text: str,
  kind: str,
  template: str,
  examples: Sequence[Example],
  labels: Sequence[str] = (),
  split: str = '',
) -> Task:
  """Builds the task of one instruction `text`.

  The kind is one of `TASKS` and chooses the metric. The template is the prompt,
  with `{instruction}` and `{input}` in it. Labels are all of a classification
  task, sorted.

  Raises:
    ValueError: the instruction is blank.
  """
  checker = Examples(template, tuple(examples), METRICS[kind], tuple(labels))
  return _named(Task('', text, checker, split))


def for_programs(text: str, tasks: Sequence[Task], split: str = '') -> Task:
  """Builds the task of an instruction `text` for programming tasks."""
  return _named(Task('', text, ProgramExamples(tuple(tasks)), split))


def _named(task: Task) -> Task:
  text = task.statement
  if not text.strip():
    raise ValueError(f'instruction {text!r}: expected a text that is not blank')
  name = hashlib.sha256(repr(key_of(task)).encode()).hexdigest()[:16]
  return dataclasses.replace(task, task_id=name)


def examples_of(task: Task) -> Examples:
  """Returns the checker of an instruction with answers in words.

  Raises:
    TypeError: the task has another checker.
  """
  if not isinstance(task.checker, Examples):
    raise TypeError(
      f'task {task.task_id} is checked by {type(task.checker).__name__}: '
      'expected an instruction with Examples'
    )
  return task.checker


def applied_to(task: Task) -> Sequence[Example | Task]:
  """Returns what the instruction is applied to."""
  if isinstance(task.checker, ProgramExamples):
    return task.checker.examples
  return examples_of(task).examples


def kind_of(task: Task) -> str:
  """Returns the kind of an instruction task, one of `TASKS` or `code`."""
  if isinstance(task.checker, ProgramExamples):
    return _CODE
  return _KINDS[examples_of(task).metric]


def template_of(task: Task) -> str:
  """Returns the prompt of an instruction task; programs have none."""
  if isinstance(task.checker, ProgramExamples):
    return ''
  return examples_of(task).template


def key_of(task: Task) -> tuple[str, str, str]:
  """Returns what identifies an instruction task: the same in every split."""
  return task.statement, kind_of(task), template_of(task)


def prompt(checker: Examples, instruction: str, example: Example) -> str:
  """Returns the prompt of one example with an instruction, rewritten or not."""
  template = checker.template
  if not example.input and template == DEFAULT_TEMPLATE:
    template = _NO_INPUT
  values = {'instruction': instruction, 'input': example.input}
  # One pass: an instruction that says `{input}` is left as it is.
  return _PLACE.sub(lambda place: values[place[1]], template)


def subsample(task: Task, limit: int, seed: int = 0) -> Task:
  """Returns the task with at most `limit` examples, 0 for all.

  They depend on the task and the seed and on nothing else, so that all rewrites
  that are compared are asked with the same ones (common random numbers).

  Raises:
    ValueError: the limit is negative.
  """
  if limit < 0:
    raise ValueError(f'limit={limit}: expected 0 for all, or more')
  examples = applied_to(task)
  if not limit or limit >= len(examples):
    return task
  places = sorted(_generator(task, seed).sample(range(len(examples)), limit))
  return with_examples(task, [examples[i] for i in places])


def growing_parts(task: Task, count: int, seed: int = 0) -> list[Task]:
  """Returns the task with more and more of its examples, up to half of them.

  Each part has twice as many as the one before it and holds them, so that what
  was asked about those is known. Which examples come first depends on the task
  and the seed alone.
  """
  examples = list(applied_to(task))
  _generator(task, seed).shuffle(examples)
  sizes = [max(1, len(examples) >> left) for left in range(count, 0, -1)]
  return [with_examples(task, examples[:size]) for size in sizes]


def _generator(task: Task, seed: int) -> random.Random:
  content = repr((seed, key_of(task))).encode()
  return random.Random(hashlib.sha256(content).digest())


def joined(first: Task, second: Task) -> Task:
  """Returns the second task with the examples of both, the first ones first."""
  return with_examples(second, [*applied_to(first), *applied_to(second)])


def with_instruction(task: Task, text: str) -> Task:
  """Returns the task with another initial instruction, under another id."""
  return _named(dataclasses.replace(task, statement=text))


def with_examples(task: Task, examples: Sequence[Example | Task]) -> Task:
  """Returns the task with other examples."""
  applied_to(task)  # Refuses a task that is no instruction.
  checker: Any = task.checker
  checker = dataclasses.replace(checker, examples=tuple(examples))
  return dataclasses.replace(task, checker=checker)


def load(path: str | pathlib.Path, split: str = '') -> tuple[Task, ...]:
  """Reads a file of JSON lines; `split` names the split of its tasks.

  Raises:
    DataError: no such file, no line in it, or a line that is no example; the
      message names file and line.
  """
  if not pathlib.Path(path).is_file():
    raise DataError(f'no instruction file at {path}: expected JSON lines')
  rows = list(json_lines.read(path))
  if not rows:
    raise DataError(f'{path} is empty: expected one JSON object per line')
  return group(rows, split)


def group(
  rows: Iterable[tuple[str, Mapping[str, Any]]], split: str = ''
) -> tuple[Task, ...]:
  """Builds tasks, in order, from pairs of a row's name for errors and a row."""
  by_key: dict[tuple[str, str, str], list[Example]] = {}
  for where, row in rows:
    key, example = _example(row, where)
    by_key.setdefault(key, []).append(example)
  return tuple(
    make_task(*key, examples, _labels(key[1], examples), split)
    for key, examples in by_key.items()
  )


def to_rows(task: Task) -> list[dict[str, Any]]:
  """Returns the lines of a task; `group` makes it from them again."""
  checker = examples_of(task)
  return [
    {
      'instruction': task.statement,
      'input': e.input,
      'output': e.outputs[0] if len(e.outputs) == 1 else list(e.outputs),
      'task': kind_of(task),
      'template': checker.template,
    }
    for e in checker.examples
  ]


def check_no_shared_input(
  first: Sequence[Task], second: Sequence[Task], names: tuple[str, str]
) -> None:
  """Raises DataError if an instruction has one input in both splits."""
  others = {key_of(task): _inputs(task) for task in second}
  for task in first:
    shared = _inputs(task) & others.get(key_of(task), set())
    if shared:
      raise DataError(
        f'{names[0]} and {names[1]} share the input {min(shared)[:80]!r} of '
        f'instruction {task.statement[:80]!r}: instructions would be '
        'chosen on the inputs that they are tested on'
      )


def match(
  dev: Sequence[Task],
  test: Sequence[Task],
  names: tuple[str, str] = ('dev', 'test'),
) -> list[tuple[Task, Task]]:
  """Pairs the splits of each task, with the labels of both in both.

  Raises:
    DataError: a task of one split is not in the other, or they share an input.
  """
  tests = {key_of(task): task for task in test}
  for key in tests.keys() ^ {key_of(task) for task in dev}:
    side = names[key in tests]
    raise DataError(
      f'the instruction {key[0][:80]!r} ({key[1]}) is in the {side} file '
      'alone: both need the same instruction, task and template'
    )
  check_no_shared_input(dev, test, names)
  pairs = [(task, tests[key_of(task)]) for task in dev]
  return [(share_labels(*pair), share_labels(*pair[::-1])) for pair in pairs]


def share_labels(task: Task, *others: Task) -> Task:
  """Returns the task with its own labels and those of the others."""
  checkers = [examples_of(each) for each in (task, *others)]
  labels = tuple(sorted({label for c in checkers for label in c.labels}))
  checker = dataclasses.replace(checkers[0], labels=labels)
  return dataclasses.replace(task, checker=checker)


def _inputs(task: Task) -> set[str]:
  return {
    example.statement if isinstance(example, Task) else example.input
    for example in applied_to(task)
  }


def _example(
  row: Mapping[str, Any], where: str
) -> tuple[tuple[str, str, str], Example]:
  for name in ('instruction', 'output'):
    if name not in row:
      raise DataError(
        f'{where}: field {name!r} is missing; there are '
        f'{", ".join(map(repr, row)) or "none"}'
      )
  unknown = sorted(row.keys() - set(FIELDS))
  if unknown:
    raise DataError(
      f'{where}: unknown field {unknown[0]!r}: expected {", ".join(FIELDS)}'
    )
  text, task = row['instruction'], row.get('task', DEFAULT_TASK)
  given, template = row.get('input', ''), row.get('template', DEFAULT_TEMPLATE)
  texts = {'instruction': text, 'input': given, 'template': template}
  for name, value in texts.items():
    if not isinstance(value, str):
      raise DataError(f'{where}: field {name!r} must be a text, got {value!r}')
  if not text.strip():
    raise DataError(f'{where}: field "instruction" is blank')
  if task not in TASKS:
    raise DataError(
      f'{where}: unknown task {task!r}: expected {", ".join(TASKS)}'
    )
  places = _PLACE.findall(template)
  if places.count('instruction') != 1 or places.count('input') > 1:
    raise DataError(
      f'{where}: template {template!r}: expected {{instruction}} once and '
      '{input} at most once'
    )
  if given and 'input' not in places:
    raise DataError(
      f'{where}: template {template!r} has no {{input}} and would drop the '
      f'input {given[:80]!r}'
    )
  return (text, task, template), Example(given, _outputs(row, task, where))


def _outputs(row: Mapping[str, Any], task: str, where: str) -> tuple[str, ...]:
  output = row['output']
  outputs = tuple(output) if isinstance(output, list) else (output,)
  if not outputs or not all(isinstance(o, str) for o in outputs):
    raise DataError(
      f'{where}: field "output" must be a text or a list of texts, '
      f'got {output!r}'
    )
  for text in outputs:
    if task == 'math' and not _DIGIT.search(text):
      raise DataError(f'{where}: output {text!r} of a math task has no number')
    if task == 'classification' and not text.strip():
      raise DataError(f'{where}: the label of a classification task is blank')
  return outputs


def _labels(task: str, examples: Sequence[Example]) -> tuple[str, ...]:
  if task != 'classification':
    return ()
  return tuple(sorted({label for e in examples for label in e.outputs}))
