"""A working directory belongs to one job, one config and one format."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from promptrl_jax import settings
from promptrl_jax.files import write_atomically

# Raised when states are laid out in another way, so that a checkpoint of an
# older version is refused instead of misread. Version 1 had no number.
FORMAT = 3
# Settings of how a run is computed, not of what: a run may go on with others.
# How patient a run is with its servers, and what it may send them.
_PACE = (
  *('connect_timeout_s', 'read_timeout_s', 'timeout_s', 'run_timeout_s'),
  *('max_retries', 'backoff_s', 'max_wait_s', 'concurrency'),
  *('requests_per_minute', 'tokens_per_minute'),
)
_FREE = (
  *('config.mesh', 'config.pool.workers', 'config.spend', 'config.together'),
  *(
    f'config.{role}.http.{field}'
    for role in ('coder', 'rewriter', 'task_model')
    for field in _PACE
  ),
)


def prepare(
  workdir: pathlib.Path,
  job: str,
  config: Any,
  models: Mapping[str, str] | None = None,
) -> None:
  """Creates the directory with its `config.json`, or checks that it is equal.

  A run may go on with another mesh, another number of pool workers or of what
  plays together, other caps of what it may spend and other time-outs and limits
  of its servers. A setting that a run was begun without has its default, also
  in that run. `models` are names by role, if a run may only go on with the same
  ones; a folder of the same name may hold another model by now.

  Raises:
    ValueError: the directory was made by another version of this project, or
      with another config; names each difference.
  """
  path, content = workdir / 'config.json', _content(job, config, models)
  if path.exists():
    _require_same(
      path,
      _with_defaults(_read(path), config),
      content,
      'use another --workdir, or the same config to continue it',
    )
  workdir.mkdir(parents=True, exist_ok=True)
  content = {'format': FORMAT, **content}
  write_atomically(path, (json.dumps(content, indent=2) + '\n').encode())


def load_config(path: pathlib.Path) -> tuple[str, Mapping[str, Any]]:
  """Returns the job and the settings in a workdir or its `config.json`.

  Raises:
    FileNotFoundError: there is no such file.
    ValueError: another version of this project wrote it.
  """
  content = _read(path / 'config.json' if path.is_dir() else path)
  return content['job'], content['config']


def results(workdir: pathlib.Path) -> Mapping[str, Any]:
  """Returns the results of a run; raises FileNotFoundError without any."""
  path = workdir / 'results.json'
  if not path.is_file():
    raise FileNotFoundError(
      f'{path} does not exist: is {workdir} a finished run?'
    )
  return json.loads(path.read_text(encoding='utf-8'))


def _content(
  job: str, config: Any, models: Mapping[str, str] | None
) -> dict[str, Any]:
  mapping = settings.to_mapping(config)
  content = {'job': job, 'models': dict(models or {}), 'config': mapping}
  return json.loads(json.dumps(content))


def _read(path: pathlib.Path) -> dict[str, Any]:
  content = json.loads(path.read_text(encoding='utf-8'))
  version = content.pop('format', 1)
  if version != FORMAT:
    raise ValueError(
      f'{path.parent} holds a run of format {version}, expected {FORMAT}: '
      'another version of this project made it; go on with that version, or '
      'use another --workdir'
    )
  return content


def _with_defaults(saved: dict[str, Any], config: Any) -> dict[str, Any]:
  """Returns what a run wrote, with settings that did not exist then.

  They have their defaults, as in every `config.json` that is read. What cannot
  be read as a config of this kind is returned as it is.
  """
  try:
    filled = settings.from_mapping(type(config), saved['config'])
  except ValueError:
    return saved
  return saved | {'config': json.loads(json.dumps(settings.to_mapping(filled)))}


def _require_same(
  path: pathlib.Path,
  saved: Mapping[str, Any],
  content: Mapping[str, Any],
  advice: str,
) -> None:
  different = sorted(_differences(saved, content, _FREE))
  if different:
    raise ValueError(
      f'{path.parent} holds a run with another config '
      f'({"; ".join(different)}): {advice}'
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
      shown = name.removeprefix('config.')
      yield f'{shown}: {a!r} there, {b!r} here'
