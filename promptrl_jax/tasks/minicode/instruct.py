"""minicode as instruction tasks: a statement and arguments in, a value out.

Each problem of the suite whose programs give whole numbers or truth values is
one task. Its statement, in the register that the suite has it in, is the
instruction; its inputs are the arguments of a call and its outputs what the
reference program gives. One assertion, the same for every wording, stands in
the template as a worked example. The prompts are those of `llm.program_lm`.
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

NAME = 'solve'  # Of every function: the name shall not give the task away.
_FEWEST = 4  # Examples of a split: a task with fewer inputs is left out.


@dataclasses.dataclass(frozen=True)
class Pair:
  """The two splits of one task's examples, and where it comes from.

  Attributes:
    task_id, register: of the problem.
    canonical: its statement in the wording that the coder knows best.
    dev, test: the same task with disjoint inputs.
    train: likewise, if there was to be such a split.
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
  """The tasks of one split of the suite.

  Args:
    split: of the suite; its problems are disjoint from those of other splits.
    dev_examples, test_examples: inputs of each; fewer for a problem that has
      fewer, in the same proportion.
    seed: of the inputs.
    train_examples: inputs of a third part; 0: there is none.
  """
  for name, count in (
    ('dev', dev_examples), ('test', test_examples), ('train', train_examples),
  ):  # fmt: skip
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
  """The task, with so many examples to train on, for dev and for test."""
  family = generate.FAMILIES[row['family']]
  reference = generate.reference(family, row['params'])
  signature = row['code'].split('\n', 1)[0]
  name = signature.split('(')[0].removeprefix('def ')
  assertion = _renamed(row['test_list'][0], name)
  rng = random.Random(f'{seed}/{row["task_id"]}')
  found: dict[str, Any] = {}
  for _ in range(40 * sum(counts)):
    args = family.inputs(rng, row['params'])
    text = ', '.join(map(generate.literal, args))
    if f'{NAME}({text})' not in assertion:
      found[text] = reference(*args)
    if len(found) == sum(counts):
      break
  kinds = {type(value) for value in found.values()}
  task = {int: 'math', bool: 'classification'}.get(min(kinds, key=str))
  share = lambda count: count * len(found) // sum(counts)
  start, end = share(counts[0]), share(counts[0]) + share(counts[1])
  sizes = end - start, len(found) - end, *([start] if counts[0] else [])
  if len(kinds) > 1 or task is None or min(sizes) < _FEWEST:
    return None
  template = (
    f'{{instruction}}\n{assertion}\n###\n{_renamed(signature, name)}\n'
    'Input: {input}'
  )
  examples = [Example(text, (str(v),)) for text, v in found.items()]
  whole = InstructionTask(
    instructions.Instruction(row['text']), task, template, tuple(examples),
    ('False', 'True') if task == 'classification' else (),
  )  # fmt: skip
  part = lambda some: dataclasses.replace(whole, examples=tuple(some))
  return Pair(
    row['task_id'], row['register'], row['canonical'],
    part(examples[start:end]), part(examples[end:]),
    part(examples[:start]) if start else None,
  )  # fmt: skip


def _renamed(code: str, name: str) -> str:
  return re.sub(rf'\b{re.escape(name)}\b', NAME, code, count=1)
