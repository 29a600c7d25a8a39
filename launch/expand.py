"""Expands the sweep of a config file into cells."""

from __future__ import annotations

import hashlib
import importlib
import pathlib
import types
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from launch.cells import Cell

_CONFIGS = pathlib.Path(__file__).resolve().parents[1] / 'configs'
# Characters of the name of a folder; file systems allow 255 bytes.
_LONGEST = 150


def expand(
  config: str, workdir: pathlib.Path, more: Sequence[str], python: str
) -> list[Cell]:
  """Returns a cell without deviations, and one for each row of `get_hyper`.

  Args:
    config: config file and its argument, `configs/NAME.py:ARGUMENT`.
    workdir: of the sweep; that of a cell is a folder in it.
    more: flags of all cells.
    python: the interpreter that runs them.

  Raises:
    ValueError: the file is no config file of this project, has no sweep, sweeps
      a setting that does not exist or that `more` sets, or has two rows that
      are the same.
  """
  path, _, argument = config.partition(':')
  module = _load(path)
  rows = [{}, *module.get_hyper(*([argument] if argument else []))]
  base = module.get_config(*([argument] if argument else []))
  values = {key: _look_up(base, key, config) for row in rows for key in row}
  _check_free(values, more, config)
  cells = [
    Cell(
      name(row),
      workdir / name(row),
      (
        *(python, '-m', f'experiments.{pathlib.Path(path).stem}'),
        f'--config={config}',
        f'--workdir={workdir / name(row)}',
        *more,
        *(f'--config.{key}={value}' for key, value in row.items()),
      ),
      row,
      {**values, **row},
    )
    for row in rows
  ]
  names = [cell.name for cell in cells]
  if twice := {name for name in names if names.count(name) > 1}:
    raise ValueError(
      f'{config}: get_hyper() returns {", ".join(sorted(twice))} more than '
      'once; expected rows that differ'
    )
  return cells


def name(row: Mapping[str, Any]) -> str:
  """Returns the folder of a row: its settings, without special characters."""
  text = ','.join(f'{key}={value}' for key, value in row.items())
  kept = (c if c.isalnum() or c in '.,=_-' else '-' for c in text)
  short = ''.join(kept).strip('-') or 'base'
  if len(short) > _LONGEST:
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    short = f'{short[:_LONGEST]}-{digest}'
  return short


def _load(path: str) -> types.ModuleType:
  """Imports a config file that has a sweep."""
  file = pathlib.Path(path).resolve()
  if file.parent != _CONFIGS or not file.is_file():
    raise ValueError(f'--config={path}: expected a file of {_CONFIGS}')
  module = importlib.import_module(f'configs.{file.stem}')
  if not hasattr(module, 'get_hyper'):
    raise ValueError(f'{path} has no get_hyper(), which returns the sweep')
  return module


def _look_up(config: Any, key: str, path: str) -> Any:
  value = config
  for part in key.split('.'):
    if not hasattr(value, '__getitem__') or part not in value:
      raise ValueError(f'{path} sweeps {key}, which is no setting of its job')
    value = value[part]
  return value


def _check_free(keys: Iterable[str], more: Sequence[str], path: str) -> None:
  """Raises ValueError for a flag of all cells that would hide a deviation."""
  given = {word.lstrip('-').partition('=')[0] for word in more}
  if both := {f'config.{key}' for key in keys} & given:
    raise ValueError(
      f'{path} sweeps {", ".join(sorted(both))}: expected flags of other '
      'settings after --'
    )
