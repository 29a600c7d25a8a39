"""Reads the frozen suite that ships with the package.

`python -m promptrl_jax.tasks.minicode2.suite` generates the file again from the
grammar; a test asserts that it is byte for byte the same.
"""

from __future__ import annotations

import functools
import gzip
import hashlib
import json
import pathlib
from collections.abc import Mapping
from typing import Any

from promptrl_jax.tasks.minicode2 import generate
from promptrl_jax.types import Task, UnitTests

PATH = pathlib.Path(__file__).parent / 'minicode2.jsonl.gz'
# Two forms of one result, and two readings of loose words, read the same.
STATEMENTS_IDENTIFY_TASKS = False
# What learns to choose or write prompts is trained on `policy`.
_NAMES = {'train': 'policy'}
SPLITS = ('train', *(s for s in generate.SPLITS if s != 'policy'))


def serialise() -> bytes:
  """Returns the suite as JSON lines."""
  return ''.join(json.dumps(row) + '\n' for row in generate.generate()).encode()


@functools.cache
def _content() -> bytes:
  return gzip.decompress(PATH.read_bytes())


@functools.cache
def rows() -> tuple[Mapping[str, Any], ...]:
  """Returns all rows of the frozen suite, in order."""
  return tuple(json.loads(line) for line in _content().splitlines())


def digest() -> str:
  """Returns a short SHA-256 of the suite, which every result contains."""
  return hashlib.sha256(_content()).hexdigest()[:16]


def load(split: str) -> tuple[Task, ...]:
  """Loads the tasks of one split."""
  if split not in SPLITS:
    raise ValueError(f'split {split!r}: minicode2 has {", ".join(SPLITS)}')
  wanted = _NAMES.get(split, split)
  return tuple(_task(row) for row in rows() if row['split'] == wanted)


def _task(row: Mapping[str, Any]) -> Task:
  signature = row['code'].split('\n', 1)[0]
  return Task(
    task_id=row['task_id'],
    statement=row['text'],
    checker=UnitTests(
      entry_point=signature.split('(')[0].removeprefix('def '),
      signature=signature,
      tests=tuple(row['test_list']),
      setup=row['test_setup_code'],
    ),
    reference=row['code'],
    split=row['split'],
    register=row['register'],
    canonical=row['canonical'],
    family=row['family'],
  )


def freeze() -> None:
  """Writes the suite, without a time in the gzip header."""
  PATH.write_bytes(gzip.compress(serialise(), 9, mtime=0))


if __name__ == '__main__':
  freeze()
  print(f'{PATH.name}: {len(rows())} problems, {digest()}')
