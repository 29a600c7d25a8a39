"""A working directory belongs to one config and one format."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from promptrl_jax.files import write_atomically
from promptrl_jax.training.checkpoint import FORMAT

# Settings of how a run is computed, not of what: a run may go on with others.
_FREE = ('mesh', 'pool.workers')


def prepare(workdir: pathlib.Path, config: Mapping[str, Any]) -> None:
  """Creates the directory with its `config.json`, or checks that it is equal.

  A run may go on with another mesh or another number of pool workers.

  Raises:
    ValueError: the directory was made by another version of this project, or
      with another config; names each difference.
  """
  path = workdir / 'config.json'
  if path.exists():
    _require_same(
      workdir,
      config,
      _FREE,
      'use another --workdir, or the same config to continue it',
    )
  workdir.mkdir(parents=True, exist_ok=True)
  content = {'format': FORMAT, **config}
  write_atomically(path, (json.dumps(content, indent=2) + '\n').encode())


def require_finished(
  workdir: pathlib.Path, config: Mapping[str, Any], free: Collection[str]
) -> Mapping[str, Any]:
  """Returns the results of a finished run with the same config as this one.

  Args:
    workdir: working directory of the finished run.
    config: config of this run.
    free: names of settings, or of whole sections, that may differ.

  Raises:
    FileNotFoundError: the run has no results.
    ValueError: another version of this project made the run, or another setting
      differs; names each difference.
  """
  finished = results(workdir)
  _require_same(
    workdir,
    config,
    {*_FREE, *free},
    f'only {", ".join(sorted(free))} may differ',
  )
  return finished


def results(workdir: pathlib.Path) -> Mapping[str, Any]:
  """Returns the results of a finished run.

  Raises:
    FileNotFoundError: there are no results.
  """
  path = workdir / 'results.json'
  if not path.is_file():
    raise FileNotFoundError(
      f'{path} does not exist: is {workdir} a finished run?'
    )
  return json.loads(path.read_text(encoding='utf-8'))


def _require_same(
  workdir: pathlib.Path,
  config: Mapping[str, Any],
  free: Collection[str],
  advice: str,
) -> None:
  theirs = json.loads((workdir / 'config.json').read_text(encoding='utf-8'))
  version = theirs.pop('format', 1)
  if version != FORMAT:
    raise ValueError(
      f'{workdir} holds a run of format {version}, expected {FORMAT}: another '
      'version of this project made it; go on with that version, or use '
      'another --workdir'
    )
  different = sorted(_differences(theirs, config, free))
  if different:
    raise ValueError(
      f'{workdir} holds a run with another config ({"; ".join(different)}): '
      f'{advice}'
    )


def _differences(
  theirs: Mapping[str, Any],
  mine: Mapping[str, Any],
  free: Collection[str],
  prefix: str = '',
) -> Iterator[str]:
  for key in theirs.keys() | mine.keys():
    name, a, b = f'{prefix}{key}', theirs.get(key), mine.get(key)
    if name in free:
      continue
    if isinstance(a, dict) and isinstance(b, dict):
      yield from _differences(a, b, free, f'{name}.')
    elif a != b:
      yield f'{name}: {a!r} there, {b!r} here'
