"""Writes instruction files from a published data set or from your own table.

  python -m promptrl_jax.tools.make_instructions --set=gsm8k --output=data/gsm8k
  python -m promptrl_jax.tools.make_instructions --csv=reviews.csv \\
    --map=input=review,output=stars --drop=id \\
    --constant='instruction=Rate the review.' --constant=task=classification \\
    --output=dev.jsonl

The first form writes train.jsonl, dev.jsonl and test.jsonl into a folder;
`--path` reads the data from a local folder instead of the hub. The second form
reads one of --csv, --text, --jsonl and --hub (with --hub_config and
--hub_split) and writes one file. Every column must be mapped to a field
(instruction, input, output, task, template) or dropped; a text file has the
single column `line`. `--labels=a,b` gives names to numeric labels.
"""

from __future__ import annotations

import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from absl import app, flags

from promptrl_jax.files import write_atomically
from promptrl_jax.tasks import (
  instruction_sets,
  instruction_sources,
  instructions,
)
from promptrl_jax.tools import command

_SET = flags.DEFINE_enum(
  'set', None, list(instruction_sets.SETS), 'Data set of the paper (PRewrite).'
)
_PATH = flags.DEFINE_string('path', '', 'Local folder with that data set.')
_ANY_SIZE = flags.DEFINE_bool(
  'any_size', False, 'Accept splits that differ from the official size.'
)
_SOURCES = {
  kind: flags.DEFINE_string(kind, None, f'Path or name of the {kind} source.')
  for kind in instruction_sources.KINDS
}
_HUB_CONFIG = flags.DEFINE_string('hub_config', '', 'Config on the hub.')
_HUB_SPLIT = flags.DEFINE_string('hub_split', 'train', 'Split on the hub.')
_MAP = flags.DEFINE_list('map', [], 'Columns of fields: field=column,...')
_CONSTANT = flags.DEFINE_multi_string(
  'constant', [], 'A field with the same text in every row: field=text.'
)
_DROP = flags.DEFINE_list('drop', [], 'Columns to drop.')
_LABELS = flags.DEFINE_list('labels', [], 'Names of the labels 0, 1, ...')
_OUTPUT = flags.DEFINE_string(
  'output', None, 'Folder for --set, else file, that is written.'
)
flags.mark_flag_as_required('output')


def main(argv):
  if len(argv) > 1:
    raise app.UsageError(f'unknown arguments: {argv[1:]}')
  with command.in_one_line(interrupted='interrupted: no file is half-written'):
    run(pathlib.Path(_OUTPUT.value or ''))


def run(output: pathlib.Path) -> None:
  """Writes the files that the flags ask for.

  Raises:
    ValueError: not exactly one source is given, or a row is malformed.
    OSError: a file cannot be read or written.
  """
  kinds = [kind for kind, flag in _SOURCES.items() if flag.value]
  given = len(kinds) + bool(_SET.value)
  if given != 1:
    raise ValueError(
      f'expected one of --set, --csv, --text, --jsonl and --hub, got {given}'
    )
  if _SET.value:
    for split in instruction_sets.SPLITS:
      task = instruction_sets.load(
        _SET.value, split, _PATH.value, _ANY_SIZE.value
      )
      write(output / f'{split}.jsonl', instructions.to_rows(task))
    return
  path = _SOURCES[kinds[0]].value or ''
  hub = _HUB_CONFIG.value, _HUB_SPLIT.value
  rows = instruction_sources.read(kinds[0], path, *hub)
  lines = instruction_sources.convert(
    rows,
    pairs('map', _MAP.value),
    pairs('constant', _CONSTANT.value),
    _DROP.value,
    _LABELS.value,
  )
  write(output, lines)


def pairs(flag: str, values: Sequence[str]) -> dict[str, str]:
  """Parses `field=text`, the values of a flag, into a dict.

  Raises:
    ValueError: a value has no equals sign, or a field is given twice.
  """
  fields = {}
  for value in values:
    field, equals, rest = value.partition('=')
    if not equals or field in fields:
      raise ValueError(f'--{flag}={value}: expected field=..., each field once')
    fields[field] = rest.replace('\\n', '\n')
  return fields


def write(path: pathlib.Path, lines: Sequence[Mapping[str, Any]]) -> None:
  """Writes rows as JSON lines and prints their number."""
  text = ''.join(json.dumps(line) + '\n' for line in lines)
  write_atomically(path, text.encode())
  print(f'{path}: {len(lines)} examples')


if __name__ == '__main__':
  app.run(main)
