"""Lists tasks that occur in more than one split of a task set.

  python -m promptrl_jax.tools.leaks --data=mbpp --path=mbpp.jsonl
  python -m promptrl_jax.tools.leaks --data=minicode
  python -m promptrl_jax.tools.leaks --data=humaneval --path=HumanEval.jsonl \
    --options=mbpp=mbpp.jsonl

The command exits with status 1 if two splits share a task, which means an id or
a statement with its tests, or if they share a statement and experiments keep
both tasks. It also lists tasks with similar statements. Those of training that
overlap with validation or test are left out of training, and are no error.
`tasks.overlaps` defines the comparisons.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

from absl import app, flags

from promptrl_jax import registry
from promptrl_jax.tasks import load as load_lib
from promptrl_jax.tasks import overlaps
from promptrl_jax.tasks.task_set import DataConfig
from promptrl_jax.tools import command
from promptrl_jax.types import Task

_DATA = flags.DEFINE_string('data', None, 'Task set.', required=True)
_PATH = flags.DEFINE_string(
  'path', '', 'File or folder of the data; empty: the package or the hub.'
)
_OPTIONS = flags.DEFINE_multi_string(
  'options', [], 'Settings of the task set, NAME=VALUE.'
)
_PLUGINS = flags.DEFINE_list('plugins', [], 'Modules that register task sets.')


def load(
  name: str, path: str = '', options: Mapping[str, str] | None = None
) -> tuple[Mapping[str, Sequence[Task]], bool]:
  """Returns all splits of a task set, and whether statements identify tasks."""
  config = DataConfig(name, path, options=options or {})
  chosen = load_lib.task_set(config)
  config = load_lib.with_options(config, chosen)
  parts = {split: chosen.load(split, config) for split in chosen.splits}
  shots = chosen.few_shots(config)
  return {'few-shots': shots, **parts}, chosen.statements_identify


def describe(
  parts: Mapping[str, Sequence[Task]], statements_identify: bool
) -> tuple[str, str]:
  """Returns a report of overlaps, and what is wrong, if anything."""
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
  wrong = ['two splits share a task'] if report.errors() else []
  if kept := report.kept_statements():
    pairs = '; '.join(map(str, kept))
    wrong.append(f'two splits share a statement, both tasks are kept: {pairs}')
  return '\n'.join(lines), '; '.join(wrong)


def options() -> dict[str, str]:
  """Reads the flag of that name."""
  pairs = [text.partition('=') for text in _OPTIONS.value]
  for name, mark, value in pairs:
    if not (name and mark):
      raise ValueError(f'--options={name}{mark}{value}: expected NAME=VALUE')
  return {name: value for name, _, value in pairs}


@command.without_arguments
def main() -> None:
  """Prints the report; exits with status 1 if it is not clean."""
  registry.import_plugins(_PLUGINS.value)
  text, wrong = describe(*load(_DATA.value, _PATH.value, options()))
  print(text)
  if wrong:
    sys.exit(f'error: {wrong}')


if __name__ == '__main__':
  app.run(main)
