"""Prints what this installation can do: versions, devices, models, sandbox.

  python -m promptrl_jax           aligned text
  python -m promptrl_jax --json    the same as one JSON object

Each part of the report stands for itself: one that fails reports its error, and
the others are printed all the same. Nothing is compiled or downloaded.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import pathlib
import platform
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from importlib import metadata
from typing import Any

import jax
from packaging.requirements import Requirement

import promptrl_jax
from promptrl_jax.execution import process
from promptrl_jax.llm import load
from promptrl_jax.models import presets, pretrained
from promptrl_jax.tasks.minicode.suite import SUITE
from promptrl_jax.tasks.minicode2.suite import SUITE as SUITE_2

_PACKAGES = (
  'jax',
  'jaxlib',
  'flax',
  'optax',
  'orbax-checkpoint',
  'transformers',
)
# Backend -> module that implements it.
_ABSENT = 'not installed'
_COLUMNS = 80

Section = dict[str, Any]


def main(argv: list[str] | None = None) -> int:
  """Prints the report; `argv` replaces the arguments of the process.

  Returns:
    The exit status: 0, also where a part of the report is an error.
  """
  parser = argparse.ArgumentParser(
    prog='python -m promptrl_jax',
    description='Reports versions, devices, backends, models and the layers '
    'of the sandbox.',
  )
  parser.add_argument(
    '--json', action='store_true', help='print one JSON object'
  )
  args = parser.parse_args(argv)
  sections = report()
  if args.json:
    print(json.dumps(sections, indent=2))
  else:
    print(to_text(sections))
  return 0


def report() -> dict[str, Section]:
  """Returns the sections of the report by title."""
  parts: dict[str, Callable[[], Section]] = {
    'versions': _versions,
    'devices': _devices,
    'backends': _backends,
    'extras': _extras,
    'models': _models,
    'sandbox': _sandbox,
  }
  return {title: _or_error(part) for title, part in parts.items()}


def to_text(sections: Mapping[str, Section]) -> str:
  """Formats sections as indented lines of name and value.

  The values of all sections start in one column; long ones are wrapped there.
  """
  width = max(len(name) for rows in sections.values() for name in rows)
  lines = []
  for title, rows in sections.items():
    lines.append(title)
    for name, value in rows.items():
      lines += textwrap.wrap(
        f'  {name:<{width}}  {_shown(value)}',
        width=_COLUMNS,
        subsequent_indent=' ' * (width + 4),
        break_long_words=False,
        break_on_hyphens=False,
      )
  return '\n'.join(lines)


def _or_error(part: Callable[[], Section]) -> Section:
  # A report of what works has to survive whatever does not.
  try:
    return part()
  except Exception as error:
    return {'error': f'{type(error).__name__}: {error}'}


def _versions() -> Section:
  versions = {
    'promptrl_jax': promptrl_jax.__version__,
    'python': platform.python_version(),
  }
  return versions | {name: _version(name) or _ABSENT for name in _PACKAGES}


def _version(name: str) -> str | None:
  try:
    return metadata.version(name)
  except metadata.PackageNotFoundError:
    return None


def _devices() -> Section:
  return {
    'system': platform.platform(),
    'cores': len(os.sched_getaffinity(0)),
    'platform': jax.default_backend(),
    'devices': [f'{d.id}: {d.device_kind}' for d in jax.devices()],
  }


def _backends() -> Section:
  return dict.fromkeys(load.BACKENDS, True)


def _extras() -> Section:
  """Whether each extra of the package is installed, or what it lacks."""
  try:
    distribution = metadata.distribution('promptrl_jax')
  except metadata.PackageNotFoundError:
    return {'error': 'unknown: promptrl_jax is not installed, only imported'}
  extras = distribution.metadata.get_all('Provides-Extra') or []
  report: Section = {}
  for extra in sorted(extras):
    lacking = sorted(set(_missing('promptrl_jax', extra)))
    report[extra] = f'no: without {", ".join(lacking)}' if lacking else True
  return report


def _missing(package: str, extra: str) -> Iterator[str]:
  """Yields requirements of an extra that are not installed.

  The extras of its requirements count as well: `jax[cuda13]` is JAX, which is
  always installed, and the plugin.
  """
  for line in metadata.requires(package) or ():
    requirement = Requirement(line)
    marker = requirement.marker
    if marker is None or marker.evaluate({'extra': ''}):
      continue  # Needed without the extra as well.
    if not marker.evaluate({'extra': extra}):
      continue
    if _version(requirement.name) is None:
      yield requirement.name
      continue
    for inner in requirement.extras:
      yield from _missing(requirement.name, inner)


def _models() -> Section:
  folders = sorted(f for f in load.ASSETS.iterdir() if f.is_dir())
  suites = {'minicode': SUITE, 'minicode2': SUITE_2}
  return {
    **{folder.name: _embedded(folder) for folder in folders},
    'presets': f'{len(presets.PRESETS)}: {", ".join(presets.PRESETS)}',
    **{
      name: f'{len(suite.rows)} problems, digest {suite.digest}'
      for name, suite in suites.items()
    },
  }


def _embedded(folder: pathlib.Path) -> str:
  recipe = json.loads((folder / 'recipe.json').read_text(encoding='utf-8'))
  size = sum(file.stat().st_size for file in folder.glob('*.safetensors'))
  return (
    f'{recipe["parameters"]:,} parameters, {size / 2**20:.1f} MiB, '
    f'digest {pretrained.digest(folder)}'
  )


def _sandbox() -> Section:
  layers = process.probe()
  missing = layers.missing()
  return {
    **dataclasses.asdict(layers),
    'user': 'own' if layers.user is None else layers.user,
    'enough': f'no: without {"; ".join(missing)}' if missing else True,
  }


def _shown(value: Any) -> str:
  if isinstance(value, bool):
    return 'yes' if value else 'no'
  if isinstance(value, (list, tuple)):
    return ', '.join(map(str, value)) or 'none'
  return str(value)


if __name__ == '__main__':
  sys.exit(main())
