"""minicode as instruction tasks: a statement and arguments in, a value out.

Each problem of the suite whose program returns integers or booleans is a task.
The instruction is the problem's statement in its register. An input is the
arguments of a call, and the output is the reference program's value. The
template contains one assertion as a worked example, the same for every wording.
The prompts are those of `llm.program_lm`.
"""

from __future__ import annotations

import dataclasses
import random
import re
from collections.abc import Mapping
from typing import Any

from promptrl_jax.tasks import instructions
from promptrl_jax.tasks.instructions import Example, InstructionTask
from promptrl_jax.tasks.minicode import generate, suite

NAME = 'solve'  # Of every function, so that no name describes the task.
_FEWEST = 4  # Examples per split; a task with fewer inputs is left out.


@dataclasses.dataclass(frozen=True)
class Pair:
  """One task with its examples split into dev, test and possibly train.

  Attributes:
    task_id: id of the problem.
    register: wording of the instruction.
    canonical: the problem's canonical statement.
    dev: the task with dev inputs.
    test: the task with test inputs, disjoint from those of dev.
    train: the task with a third set of inputs, None if none was asked for.
  """

  task_id: str
  register: str
  canonical: str
  dev: InstructionTask
  test: InstructionTask
  train: InstructionTask | None = None


def load(
  split: str,
  dev_examples: int = 8,
  test_examples: int = 8,
  seed: int = 0,
  train_examples: int = 0,
) -> tuple[Pair, ...]:
  """Loads the tasks of one split of the suite.

  Args:
    split: a split of the suite; splits have disjoint problems.
    dev_examples: number of dev inputs; a problem with fewer inputs has fewer of
      each kind, in the same proportion.
    test_examples: number of test inputs.
    seed: seed of the inputs.
    train_examples: number of training inputs; 0 for no training part.
  """
  for name, count in (
    ('dev', dev_examples),
    ('test', test_examples),
    ('train', train_examples),
  ):
    if count < _FEWEST and (name, count) != ('train', 0):
      raise ValueError(f'{name}_examples={count}: expected at least {_FEWEST}')
  if split not in suite.SPLITS:
    raise ValueError(f'split {split!r}: minicode has {", ".join(suite.SPLITS)}')
  pairs = (
    _pair(row, (train_examples, dev_examples, test_examples), seed)
    for row in suite.rows()
    if row['split'] == split
  )
  return tuple(pair for pair in pairs if pair is not None)


def _pair(
  row: Mapping[str, Any], counts: tuple[int, int, int], seed: int
) -> Pair | None:
  """Returns the task with (train, dev, test) counts; None if too few."""
  family = generate.FAMILIES[row['family']]
  reference = generate.reference(family, row['params'])
  signature = row['code'].split('\n', 1)[0]
  name = signature.split('(')[0].removeprefix('def ')
  assertion = _renamed(row['test_list'][0], name)
  rng = random.Random(f'{seed}/{row["task_id"]}')
  outputs: dict[str, Any] = {}
  for _ in range(40 * sum(counts)):
    args = family.inputs(rng, row['params'])
    text = ', '.join(map(generate.literal, args))
    if f'{NAME}({text})' not in assertion:
      outputs[text] = reference(*args)
    if len(outputs) == sum(counts):
      break
  kinds = {type(value) for value in outputs.values()}
  task = {int: 'math', bool: 'classification'}.get(min(kinds, key=str))
  share = lambda count: count * len(outputs) // sum(counts)
  start, end = share(counts[0]), share(counts[0]) + share(counts[1])
  sizes = end - start, len(outputs) - end, *([start] if counts[0] else [])
  if len(kinds) > 1 or task is None or min(sizes) < _FEWEST:
    return None
  template = (
    f'{{instruction}}\n{assertion}\n###\n{_renamed(signature, name)}\n'
    'Input: {input}'
  )
  examples = [Example(text, (str(v),)) for text, v in outputs.items()]
  whole = InstructionTask(
    instructions.Instruction(row['text']),
    task,
    template,
    tuple(examples),
    ('False', 'True') if task == 'classification' else (),
  )
  part = lambda chosen: dataclasses.replace(whole, examples=tuple(chosen))
  return Pair(
    row['task_id'],
    row['register'],
    row['canonical'],
    part(examples[start:end]),
    part(examples[end:]),
    part(examples[:start]) if start else None,
  )


def _renamed(code: str, name: str) -> str:
  return re.sub(rf'\b{re.escape(name)}\b', NAME, code, count=1)
