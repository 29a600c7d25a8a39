"""Runs an experiment once for each row of its config file's sweep.

  python -m promptrl_jax.tools.sweep --config=configs/mbpp_ppo.py:smoke \\
    --workdir=runs/sweep -- --config.seeds=5

`get_hyper` of the config file returns the rows for the argument, each a dict of
settings that deviate; a run without any deviation comes first. Flags after `--`
go to every run. The runs take turns, each in a folder named after its
deviations; one that is complete is run again from its checkpoints, which only
evaluates it. With --dry_run the commands are printed, one on each line, for a
cluster's queue.
"""

from __future__ import annotations

import importlib
import pathlib
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from absl import app, flags

from promptrl_jax.tools import command

_CONFIG = flags.DEFINE_string(
  'config', None, 'Config file with `get_hyper`, FILE:ARGUMENT.', required=True
)
_WORKDIR = flags.DEFINE_string(
  'workdir', None, 'Where the folders of the runs go.', required=True
)
_DRY_RUN = flags.DEFINE_bool('dry_run', False, 'Print commands, run nothing.')


def rows(config: str) -> list[Mapping[str, Any]]:
  """Returns the rows of a sweep: no deviation, then those of the config file.

  Raises:
    ValueError: the file has no sweep.
  """
  path, _, argument = config.partition(':')
  module = importlib.import_module(f'configs.{pathlib.Path(path).stem}')
  if not hasattr(module, 'get_hyper'):
    raise ValueError(f'{config} has no get_hyper(), which returns the sweep')
  return [{}, *module.get_hyper(argument)]


def name(row: Mapping[str, Any]) -> str:
  """Returns the folder of a row: its settings, without special characters."""
  text = ','.join(f'{key}={value}' for key, value in row.items())
  kept = (c if c.isalnum() or c in '.,=_-' else '-' for c in text)
  return ''.join(kept).strip('-') or 'base'


def commands(
  config: str, workdir: str, more: Sequence[str] = ()
) -> list[list[str]]:
  """Returns the command of each row."""
  job = pathlib.Path(config.partition(':')[0]).stem
  return [
    [
      *(sys.executable, '-m', f'experiments.{job}', f'--config={config}'),
      f'--workdir={pathlib.Path(workdir, name(row))}',
      *(f'--config.{key}={value}' for key, value in row.items()),
      *more,
    ]
    for row in rows(config)
  ]


def main(argv: list[str]) -> None:
  with command.in_one_line('interrupted: the same command goes on'):
    todo = commands(_CONFIG.value, _WORKDIR.value, argv[1:])
    for number, words in enumerate(todo, 1):
      if _DRY_RUN.value:
        print(shlex.join(words))
        continue
      print(f'--- run {number} of {len(todo)}: {shlex.join(words)}', flush=True)
      status = subprocess.run(words, check=False).returncode
      if status:
        sys.exit(f'error: run {number} ended with status {status}')


if __name__ == '__main__':
  app.run(main)
