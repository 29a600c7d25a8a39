"""Tasks that are given by an instruction and examples, as JSON lines.

A line is one example:

  {"instruction": "...", "input": "...", "output": "...", "task": "qa",
   "template": "{instruction}\\nQuestion: {input}"}

`input`, `task` and `template` may be left out. `output` is a text, or a list of
texts each of which is right. Lines with the same instruction, task and template
are the examples of one `InstructionTask`.

A rewriter is handed an `Instruction`, which has no field that could hold an
input: one instruction serves them all (PRewrite, arXiv 2401.08189).
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import pathlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from promptrl_jax.tasks.mbpp import DataError

TASKS = ('qa', 'classification', 'math')
DEFAULT_TASK = 'qa'
DEFAULT_TEMPLATE = '{instruction}\nInput: {input}'
FIELDS = ('instruction', 'input', 'output', 'task', 'template')
_NO_INPUT = '{instruction}'
_PLACE = re.compile(r'\{(instruction|input)\}')
_DIGIT = re.compile(r'[0-9]')


@dataclasses.dataclass(frozen=True)
class Instruction:
  """What a rewriter may know of a task: its instruction, and no input.

  Attributes:
    text: the instruction.
  """

  text: str

  def __post_init__(self):
    if not isinstance(self.text, str) or not self.text.strip():
      raise ValueError(
        f'instruction is {self.text!r}: expected a text that is not blank'
      )

  def rewritten(self, text: str) -> Instruction:
    """Returns an instruction with this text, or itself if the text is empty.

    A rewriter's reply may hold no instruction; the task is kept then.
    """
    return Instruction(text) if text else self


@dataclasses.dataclass(frozen=True)
class Example:
  """An input and the outputs that are right for it.

  Attributes:
    input: what the instruction is to be applied to; may be empty.
    outputs: at least one right answer.
  """

  input: str
  outputs: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class InstructionTask:
  """An instruction, how it becomes a prompt, and examples.

  Attributes:
    instruction: as it was found, before any rewriting.
    task: one of `TASKS`.
    template: the prompt, with `{instruction}` and `{input}` in it.
    examples: at least one.
    labels: of a classification task, every label there is, sorted.
  """

  instruction: Instruction
  task: str
  template: str
  examples: tuple[Example, ...]
  labels: tuple[str, ...] = ()

  @property
  def key(self) -> tuple[str, str, str]:
    """What tells a task from others: the same in every split."""
    return self.instruction.text, self.task, self.template

  @property
  def task_id(self) -> str:
    """A short name made of the key."""
    return hashlib.sha256(repr(self.key).encode()).hexdigest()[:16]

  def prompt(self, instruction: Instruction, example: Example) -> str:
    """The prompt with an instruction, this task's own or a rewritten one."""
    template = self.template
    if not example.input and template == DEFAULT_TEMPLATE:
      template = _NO_INPUT
    values = {'instruction': instruction.text, 'input': example.input}
    # One pass: an instruction that says `{input}` is left as it is.
    return _PLACE.sub(lambda place: values[place[1]], template)


def load(path: str | pathlib.Path) -> tuple[InstructionTask, ...]:
  """Reads a file of JSON lines.

  Returns:
    Its tasks, in the order in which they first occur.

  Raises:
    DataError: no such file, no line in it, or a line that is no example; the
      message names file and line.
  """
  file = pathlib.Path(path)
  if not file.is_file():
    raise DataError(f'no instruction file at {path}: expected JSON lines')
  # Not `splitlines`: JSON strings may hold U+2028 as it is.
  lines = file.read_text(encoding='utf-8').split('\n')
  rows = [
    (f'{path}:{number}', _parse(line, f'{path}:{number}'))
    for number, line in enumerate(lines, 1)
    if line.strip()
  ]
  if not rows:
    raise DataError(f'{path} is empty: expected one JSON object per line')
  return group(rows)


def group(
  rows: Iterable[tuple[str, Mapping[str, Any]]],
) -> tuple[InstructionTask, ...]:
  """Tasks from rows with the fields of a line.

  Args:
    rows: pairs of a name of the row, for errors, and the row.
  """
  found: dict[tuple[str, str, str], list[Example]] = {}
  for where, row in rows:
    key, example = _example(row, where)
    found.setdefault(key, []).append(example)
  return tuple(
    InstructionTask(Instruction(text), task, template, tuple(examples), labels)
    for (text, task, template), examples in found.items()
    for labels in [_labels(task, examples)]
  )


def to_rows(task: InstructionTask) -> list[dict[str, Any]]:
  """The lines of a task; `group` makes it from them again."""
  return [
    {
      'instruction': task.instruction.text,
      'input': example.input,
      'output': (
        example.outputs[0]
        if len(example.outputs) == 1
        else list(example.outputs)
      ),
      'task': task.task,
      'template': task.template,
    }
    for example in task.examples
  ]


def match(
  dev: Sequence[InstructionTask],
  test: Sequence[InstructionTask],
  names: tuple[str, str] = ('dev', 'test'),
) -> list[tuple[InstructionTask, InstructionTask]]:
  """Pairs the splits of each task, with the labels of both in both.

  Raises:
    DataError: a task of one split is not in the other, or they share an input.
  """
  tests = {task.key: task for task in test}
  for key in tests.keys() ^ {task.key for task in dev}:
    side = names[key in tests]
    raise DataError(
      f'the instruction {key[0][:80]!r} ({key[1]}) is in the {side} file '
      'alone: both need the same instruction, task and template'
    )
  pairs = []
  for task in dev:
    other = tests[task.key]
    shared = {e.input for e in task.examples} & {
      e.input for e in other.examples
    }
    if shared:
      raise DataError(
        f'{names[0]} and {names[1]} share the input {min(shared)[:80]!r} of '
        f'instruction {task.instruction.text[:80]!r}: instructions would be '
        'chosen on what they are tested on'
      )
    labels = tuple(sorted({*task.labels, *other.labels}))
    pairs.append(
      (
        dataclasses.replace(task, labels=labels),
        dataclasses.replace(other, labels=labels),
      )
    )
  return pairs


def _parse(line: str, where: str) -> dict[str, Any]:
  try:
    row = json.loads(line)
  except json.JSONDecodeError as error:
    raise DataError(f'{where}: not JSON: {error}') from error
  if not isinstance(row, dict):
    raise DataError(f'{where}: expected an object, got {type(row).__name__}')
  return row


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
  for name, value in (
    ('instruction', text),
    ('input', given),
    ('template', template),
  ):
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
