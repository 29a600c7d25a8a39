"""The folder of a run belongs to one config."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from promptrl_jax.files import write_atomically

# How a run is computed and not what: it may go on with others.
_FREE = ('mesh', 'pool.workers')


def prepare(workdir: pathlib.Path, config: Mapping[str, Any]) -> None:
  """Creates the folder with its `config.json`, or checks that it is the same.

  A run may go on with another mesh or number of workers of the pool.

  Raises:
    ValueError: it was made with another config; says each difference.
  """
  path = workdir / 'config.json'
  if path.exists():
    _require_same(
      workdir, json.loads(path.read_text()), config, _FREE,
      'use another --workdir, or the same config to continue it',
    )  # fmt: skip
  workdir.mkdir(parents=True, exist_ok=True)
  write_atomically(path, (json.dumps(config, indent=2) + '\n').encode())


def require_finished(
  workdir: pathlib.Path, config: Mapping[str, Any], free: Collection[str]
) -> Mapping[str, Any]:
  """The results of a run of the same config as this one.

  Args:
    workdir: of the run.
    config: of this one.
    free: names in it, or of whole parts of it, that may differ.

  Raises:
    FileNotFoundError: the run has no results.
    ValueError: something else differs; says what.
  """
  found = results(workdir)
  theirs = json.loads((workdir / 'config.json').read_text())
  _require_same(
    workdir, theirs, config, {*_FREE, *free},
    f'only {", ".join(sorted(free))} may differ',
  )  # fmt: skip
  return found


def results(workdir: pathlib.Path) -> Mapping[str, Any]:
  """What a finished run has found.

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
  theirs: Mapping[str, Any],
  mine: Mapping[str, Any],
  free: Collection[str],
  advice: str,
) -> None:
  different = sorted(_differences(theirs, mine, free))
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
