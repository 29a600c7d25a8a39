"""minicode as instruction tasks: a statement and arguments in, a value out.

Each problem of the suite whose programs give whole numbers or truth values is
one task. Its statement, in the register that the suite has it in, is the
instruction; its inputs are the arguments of a call and its outputs what the
reference program gives. One assertion, the same for every wording, stands in
the template as a worked example. The prompts are those of `llm.program_lm`.
"""

from __future__ import annotations

import dataclasses
import functools
import random
import re
from collections.abc import Mapping, Sequence
from typing import Any

from promptrl_jax.tasks import instructions
from promptrl_jax.tasks.minicode import generate
from promptrl_jax.tasks.minicode.suite import SUITE
from promptrl_jax.tasks.task_set import DataConfig
from promptrl_jax.types import Example, Task

NAME = 'solve'  # Of every function: the name shall not give the task away.
PARTS = ('train', 'dev', 'test')  # The parts of a task's inputs.
_FEWEST = 4  # Examples of a part: a task with fewer inputs is left out.
_KINDS = {int: 'math', bool: 'classification'}  # By the type of the values.
_LABELS = {'math': (), 'classification': ('False', 'True')}


@dataclasses.dataclass(frozen=True)
class Options:
  """Settings of the task set `minicode_instructions`.

  Attributes:
    split: split of the suite that instructions are rewritten of.
    train_examples: inputs of each instruction to train on, as PRewrite does. 0:
      the problems of the suite's train split are trained on, and those of its
      validation split say when to stop.
    dev_examples: inputs that choose an instruction.
    test_examples: inputs that measure it.
  """

  split: str = 'test'
  train_examples: int = 0
  dev_examples: int = 8
  test_examples: int = 8


def load_part(split: str, config: DataConfig) -> tuple[Task, ...]:
  """Loads `train`, `validation`, `dev` or `test`.

  Instructions are chosen on `dev` and measured on `test`, which pair up. The
  `validation` split says when to stop.
  """
  options: Options = config.options
  sizes = options.dev_examples, options.test_examples
  if split in ('train', 'validation') and not options.train_examples:
    return tuple(map(_merge, _load(split, *sizes, 0, 0)))
  part = 'dev' if split == 'validation' else split
  tasks = _load(options.split, *sizes, 0, options.train_examples)
  return tuple(parts[part] for parts in tasks)


def _merge(parts: Mapping[str, Task]) -> Task:
  """One task with the inputs of all its parts."""
  checkers = [instructions.examples_of(task) for task in parts.values()]
  examples = [example for c in checkers for example in c.examples]
  return instructions.with_examples(parts['dev'], examples)


@functools.cache
def _load(*args: Any) -> tuple[dict[str, Task], ...]:
  return load(*args)


def load(
  split: str,
  dev_examples: int = 8,
  test_examples: int = 8,
  seed: int = 0,
  train_examples: int = 0,
) -> tuple[dict[str, Task], ...]:
  """Loads the tasks of one split of the suite.

  Args:
    split: of the suite; its problems are disjoint from those of other splits.
    dev_examples, test_examples: inputs of each part; fewer for a problem that
      has fewer, in the same proportion.
    seed: chooses the inputs.
    train_examples: inputs of a third part; 0 leaves it out.

  Returns:
    The parts of every task by name, `dev`, `test` and perhaps `train`: the same
    task with disjoint inputs. All carry the register and the canonical wording
    of the problem.

  Raises:
    ValueError: the split is not known, or a part has too few examples.
  """
  for name, count in (
    ('dev', dev_examples),
    ('test', test_examples),
    ('train', train_examples),
  ):
    if count < _FEWEST and (name, count) != ('train', 0):
      raise ValueError(f'{name}_examples={count}: expected at least {_FEWEST}')
  if split not in SUITE.splits:
    raise ValueError(f'split {split!r}: minicode has {", ".join(SUITE.splits)}')
  counts = train_examples, dev_examples, test_examples
  tasks = (
    _split_inputs(row, counts, seed)
    for row in SUITE.rows
    if row['split'] == split
  )
  return tuple(parts for parts in tasks if parts)


def _split_inputs(
  row: Mapping[str, Any], counts: tuple[int, int, int], seed: int
) -> dict[str, Task]:
  """The parts of one task; none if it has too few inputs or other values."""
  values = _values(row, sum(counts), seed)
  types = {type(value) for value in values.values()}
  kind = _KINDS.get(min(types, key=str))
  share = lambda count: count * len(values) // sum(counts)
  start, end = share(counts[0]), share(counts[0]) + share(counts[1])
  cuts = {'train': (0, start), 'dev': (start, end), 'test': (end, len(values))}
  if not counts[0]:
    del cuts['train']
  fewest = min(end - start for start, end in cuts.values())
  if len(types) > 1 or kind is None or fewest < _FEWEST:
    return {}
  examples = [Example(text, (str(v),)) for text, v in values.items()]
  return {
    part: _task(row, kind, examples[first:last], part)
    for part, (first, last) in cuts.items()
  }


def _task(
  row: Mapping[str, Any], kind: str, examples: Sequence[Example], part: str
) -> Task:
  signature, name, assertion = _head(row)
  template = (
    f'{{instruction}}\n{assertion}\n###\n{_renamed(signature, name)}\n'
    'Input: {input}'
  )
  task = instructions.make_task(
    row['text'], kind, template, examples, _LABELS[kind], part
  )
  return dataclasses.replace(
    task,
    register=row['register'],
    canonical=row['canonical'],
    family=row['family'],
  )


def _values(row: Mapping[str, Any], count: int, seed: int) -> dict[str, Any]:
  """At most `count` inputs and what the reference program gives for each."""
  family = generate.FAMILIES[row['family']]
  reference = generate.reference(family, row['params'])
  _, _, assertion = _head(row)
  rng = random.Random(f'{seed}/{row["task_id"]}')
  values: dict[str, Any] = {}
  for _ in range(40 * count):
    args = family.inputs(rng, row['params'])
    text = ', '.join(map(generate.literal, args))
    if f'{NAME}({text})' not in assertion:
      values[text] = reference(*args)
    if len(values) == count:
      break
  return values


def _head(row: Mapping[str, Any]) -> tuple[str, str, str]:
  """Signature and name of the program, and the assertion that is shown."""
  signature = row['code'].split('\n', 1)[0]
  name = signature.split('(')[0].removeprefix('def ')
  return signature, name, _renamed(row['test_list'][0], name)


def _renamed(code: str, name: str) -> str:
  return re.sub(rf'\b{re.escape(name)}\b', NAME, code, count=1)
