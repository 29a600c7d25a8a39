"""One instruction for all of MBPP: how programs are to be written.

The tasks of a split are the examples of the instruction. Training tasks that
are worded like one of another split are left out, as in the task set `mbpp`.
"""

from __future__ import annotations

import dataclasses

from promptrl_jax.tasks import instructions, mbpp, overlaps
from promptrl_jax.tasks.task_set import SPLITS, DataConfig
from promptrl_jax.types import Task


@dataclasses.dataclass(frozen=True)
class Options:
  """Settings of the task set `mbpp_instruction`.

  Attributes:
    instruction: where the search for a better one starts.
  """

  instruction: str = 'Write a Python function.'

  def __post_init__(self):
    if not self.instruction.strip():
      raise ValueError('data.options.instruction is blank: expected a text')


def load(split: str, config: DataConfig) -> tuple[Task, ...]:
  """Returns the instruction with the tasks of a split.

  Raises:
    DataError: as `mbpp.load`.
  """
  tasks = mbpp.load(split, config.path)
  if split == 'train':
    parts = {name: mbpp.load(name, config.path) for name in SPLITS}
    overlapping = overlaps.check_no_leak(parts).train_ids()
    tasks = tuple(t for t in tasks if t.task_id not in overlapping)
  text = config.options.instruction
  return (instructions.for_programs(text, tasks, split),)
