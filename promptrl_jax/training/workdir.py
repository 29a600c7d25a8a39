"""The folder of a run belongs to one config."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterator, Mapping
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
    different = sorted(_differences(json.loads(path.read_text()), config))
    if different:
      raise ValueError(
        f'{workdir} holds a run with another config ({"; ".join(different)}): '
        'use another --workdir, or the same config to continue it'
      )
  workdir.mkdir(parents=True, exist_ok=True)
  write_atomically(path, (json.dumps(config, indent=2) + '\n').encode())


def _differences(
  theirs: Mapping[str, Any], mine: Mapping[str, Any], prefix: str = ''
) -> Iterator[str]:
  for key in theirs.keys() | mine.keys():
    a, b = theirs.get(key), mine.get(key)
    if isinstance(a, dict) and isinstance(b, dict):
      yield from _differences(a, b, f'{prefix}{key}.')
    elif a != b and f'{prefix}{key}' not in _FREE:
      yield f'{prefix}{key}: {a!r} there, {b!r} here'
