"""The frozen suite that ships with the package.

`python -m promptrl_jax.tasks.minicode2.suite` generates the file again from the
grammar; a test asserts that it is byte for byte the same.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import pathlib

from promptrl_jax.tasks.frozen import FrozenSuite, to_task
from promptrl_jax.tasks.minicode2 import generate
from promptrl_jax.tasks.task_set import DataConfig
from promptrl_jax.types import Task

# What learns to choose or write prompts is trained on `policy`.
SUITE = FrozenSuite(
  pathlib.Path(__file__).parent / 'minicode2.jsonl.gz',
  generate.generate,
  {'train': 'policy'}
  | {split: split for split in generate.SPLITS if split != 'policy'},
)

# Further problems that the templates of `train` are sure to have.
_MOST = 16_000


@dataclasses.dataclass(frozen=True)
class Options:
  """Settings of the task set `minicode2`.

  Attributes:
    more: problems of `train` beside the frozen ones, drawn from its templates:
      what learns to prompt sees each problem less often.
  """

  more: int = 0

  def __post_init__(self):
    if not 0 <= self.more <= _MOST:
      raise ValueError(
        f'data.options.more={self.more}: expected 0 to {_MOST} problems'
      )


def load(split: str, config: DataConfig) -> tuple[Task, ...]:
  """Loads the tasks of one split."""
  tasks = SUITE.load(split)
  if split != 'train':
    return tasks
  return (*tasks, *more(config.options.more))


def digest(config: DataConfig) -> str:
  """Returns the hash of the suite, and how many problems were added."""
  added = config.options.more
  return f'{SUITE.digest}+{added}' if added else SUITE.digest


@functools.cache
def more(count: int) -> tuple[Task, ...]:
  """Draws tasks of the templates of `train` that are not in the suite."""
  known = {task.task_id for task in SUITE.load('train')}
  rows = (row for row in generate.further() if row['task_id'] not in known)
  return tuple(map(to_task, itertools.islice(rows, count)))


if __name__ == '__main__':
  SUITE.freeze()
