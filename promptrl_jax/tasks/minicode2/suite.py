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
    skip: problems that are left out before these, so that what is trained in
      two stages sees others in the second.
  """

  more: int = 0
  skip: int = 0

  def __post_init__(self):
    for name in ('more', 'skip'):
      if getattr(self, name) < 0:
        raise ValueError(
          f'data.options.{name}={getattr(self, name)}: expected 0 or more'
        )
    if self.more + self.skip > _MOST:
      raise ValueError(
        f'data.options.more={self.more} after skip={self.skip}: expected '
        f'{_MOST} problems at most, together'
      )


def load(split: str, config: DataConfig) -> tuple[Task, ...]:
  """Loads the tasks of one split."""
  tasks = SUITE.load(split)
  if split != 'train':
    return tasks
  return (*tasks, *further(config.options.more, config.options.skip))


def digest(config: DataConfig) -> str:
  """Returns the hash of the suite, and how many problems were added."""
  more, skip = config.options.more, config.options.skip
  if not more:
    return SUITE.digest
  return f'{SUITE.digest}+{more}' + (f' after {skip}' if skip else '')


@functools.cache
def further(count: int, skip: int = 0) -> tuple[Task, ...]:
  """Draws tasks of the templates of `train` that are not in the suite."""
  known = {task.task_id for task in SUITE.load('train')}
  rows = (row for row in generate.further() if row['task_id'] not in known)
  return tuple(map(to_task, itertools.islice(rows, skip, skip + count)))


if __name__ == '__main__':
  SUITE.freeze()
