"""Writes a corpus of prompts, one in each line of JSON.

  python -m promptrl_jax.tools.make_corpus --source=file --input=prompts.txt \\
    --limit=1000 --output=prompts.jsonl
  python -m promptrl_jax.tools.make_corpus --source=wikipedia \\
    --limit=1000 --output=prompts.jsonl

A file has one prompt in each line. Of Wikipedia the first paragraphs of its
articles are taken, read from the hub one by one without downloading the rest.
Blank lines and repetitions are left out; a line is `{"prompt": ...}`.
"""

from __future__ import annotations

import itertools
import json
import pathlib
from collections.abc import Iterable, Iterator

from absl import app, flags

from promptrl_jax.files import write_atomically
from promptrl_jax.tasks import instruction_sources
from promptrl_jax.tasks.json_lines import DataError
from promptrl_jax.tools import command

_SOURCE = flags.DEFINE_enum(
  'source', 'file', ['file', 'wikipedia'], 'Where prompts come from.'
)
_INPUT = flags.DEFINE_string('input', '', 'Text file, for --source=file.')
_DUMP = flags.DEFINE_string(
  'dump', '20231101.en', 'Date and language of wikimedia/wikipedia on the hub.'
)
_LIMIT = flags.DEFINE_integer('limit', 1000, 'Most prompts.', lower_bound=1)
_OUTPUT = flags.DEFINE_string('output', None, 'File that is written.')
flags.mark_flag_as_required('output')


def main(argv):
  if len(argv) > 1:
    raise app.UsageError(f'unknown arguments: {argv[1:]}')
  with command.in_one_line(interrupted='interrupted: no file is half-written'):
    run(pathlib.Path(_OUTPUT.value or ''))


def run(output: pathlib.Path) -> None:
  """Writes the file that the flags ask for.

  Raises:
    ValueError: there is no prompt, or no input where one is needed.
    DataError: the source cannot be read.
  """
  if _SOURCE.value == 'file':
    if not _INPUT.value:
      raise ValueError('--source=file needs --input, a text file')
    rows = instruction_sources.read('text', _INPUT.value)
    texts = (columns[instruction_sources.LINE] for _, columns in rows)
  else:
    texts = summaries(_DUMP.value)
  prompts = take(texts, _LIMIT.value)
  if not prompts:
    raise ValueError(f'{_INPUT.value or _DUMP.value}: no prompt in it')
  lines = ''.join(json.dumps({'prompt': p}) + '\n' for p in prompts)
  write_atomically(output, lines.encode())
  print(f'{output}: {len(prompts)} prompts')


def take(texts: Iterable[str], limit: int) -> list[str]:
  """The first different texts that are not blank; reads no further."""
  stripped = filter(None, (text.strip() for text in texts))
  seen: set[str] = set()
  new = (t for t in stripped if not (t in seen or seen.add(t)))
  return list(itertools.islice(new, limit))


def summaries(dump: str) -> Iterator[str]:
  """The first paragraphs of the articles of a dump, in its order.

  Raises:
    DataError: the hub cannot be reached, or has no such dump.
  """
  import datasets

  try:
    rows = datasets.load_dataset(
      'wikimedia/wikipedia', dump, split='train', streaming=True
    )
    for row in rows:
      yield row['text'].split('\n', 1)[0]
  except Exception as error:  # The hub raises many kinds.
    raise DataError(
      f'wikimedia/wikipedia {dump} cannot be read ({type(error).__name__}): '
      'expected a connection to the hub and a dump such as 20231101.en; '
      '--source=file needs neither'
    ) from error


if __name__ == '__main__':
  app.run(main)
