"""A corpus of prompts from a file; no test asks the hub."""

import json

import pytest

from promptrl_jax.tools import make_corpus
from tests.experiments import commands

TOOL = 'promptrl_jax.tools.make_corpus'


def test_five_lines_with_a_limit_of_three_give_three(tmp_path):
  source, output = tmp_path / 'in.txt', tmp_path / 'out.jsonl'
  source.write_text('one\n\ntwo\none\nthree\nfour\nfive\n')
  result = commands.run(
    TOOL, f'--input={source}', '--limit=3', f'--output={output}'
  )
  assert result.returncode == 0 and '3 prompts' in result.stdout
  rows = [json.loads(line) for line in output.read_text().splitlines()]
  assert rows == [{'prompt': text} for text in ('one', 'two', 'three')]


def test_no_more_is_read_than_is_needed():
  def texts():
    yield from ('a', ' ', 'a', 'b')
    raise AssertionError('read on')

  assert make_corpus.take(texts(), 2) == ['a', 'b']


@pytest.mark.parametrize(
  ('flags', 'message'),
  [
    (['--source=file'], '--source=file needs --input'),
    (['--input=/nowhere.txt'], 'no text file at /nowhere.txt'),
    (['--source=pages'], 'should be one of <file|wikipedia>'),
  ],
)
def test_bad_input_is_one_clear_message(tmp_path, flags, message):
  output = tmp_path / 'out.jsonl'
  result = commands.run(TOOL, *flags, f'--output={output}')
  assert result.returncode != 0 and 'Traceback' not in result.stderr
  assert message in result.stderr
  assert not output.exists()
