"""Lists tasks that occur in more than one split of a task set.

  python -m promptrl_jax.tools.leaks --data=mbpp --path=mbpp.jsonl
  python -m promptrl_jax.tools.leaks --data=minicode

The command exits with status 1 if two splits share a task, which means an id or
a statement with its tests. It also lists tasks with similar statements, which
experiments leave out of training if they overlap with validation or test.
`tasks.overlaps` defines the comparisons.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

from absl import app, flags

from promptrl_jax.tasks import mbpp, overlaps
from promptrl_jax.tasks.minicode import suite
from promptrl_jax.tools import command
from promptrl_jax.types import Task

_DATA = flags.DEFINE_enum(
  'data', None, ['mbpp', 'minicode'], 'Task set.', required=True
)
_PATH = flags.DEFINE_string(
  'path', '', 'JSONL file of MBPP; empty loads the Hugging Face hub.'
)


def load(
  name: str, path: str = ''
) -> tuple[Mapping[str, Sequence[Task]], bool]:
  """Returns all splits of a task set, and whether statements identify tasks."""
  if name == 'minicode':
    parts = {split: suite.load(split) for split in suite.SPLITS}
    return parts, suite.STATEMENTS_IDENTIFY_TASKS
  loaded = {
    split: mbpp.load(split, path or None)
    for split in mbpp.SPLITS
    if split != 'prompt'
  }
  parts = {'few-shots': mbpp.few_shots(path or None), **loaded}
  return parts, mbpp.STATEMENTS_IDENTIFY_TASKS


def describe(
  parts: Mapping[str, Sequence[Task]], statements_identify: bool
) -> tuple[str, bool]:
  """Compares the splits of a task set.

  Returns:
    The text of the report, and whether no task occurs in two splits.
  """
  report = overlaps.find_overlaps(parts, statements_identify)
  sizes = ', '.join(f'{split} {len(tasks)}' for split, tasks in parts.items())
  lines = [f'tasks: {sizes}']
  if not statements_identify:
    lines.append('statements alone do not identify tasks: not compared')
  for kind in overlaps.KINDS:
    pairs = [o for o in report.overlaps if o.kind == kind]
    lines += [f'{kind}: {len(pairs)}', *(f'  {pair}' for pair in pairs)]
  left_out = sorted(report.train_ids())
  lines.append(
    f'left out of training: {len(left_out)} {" ".join(left_out)}'.rstrip()
  )
  return '\n'.join(lines), not report.errors()


def main(argv: list[str]) -> None:
  if len(argv) > 1:
    raise app.UsageError(f'unknown arguments: {argv[1:]}')
  with command.in_one_line(interrupted='interrupted'):
    text, clean = describe(*load(_DATA.value, _PATH.value))
  print(text)
  if not clean:
    sys.exit('error: two splits share a task')


if __name__ == '__main__':
  app.run(main)
