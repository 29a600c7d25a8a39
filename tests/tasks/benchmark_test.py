"""Rows of published benchmarks: files, the hub, and what may be wrong."""

import gzip
import hashlib
import json

import pytest

from promptrl_jax.tasks import evalplus, humaneval, mbpp, mbpp_sanitized
from promptrl_jax.tasks.benchmark import Benchmark
from promptrl_jax.tasks.json_lines import DataError

PAIRS = Benchmark(
  name='Pairs',
  layouts=({'task_id': int, 'text': str}, {'task_id': str, 'words': list}),
  hub='someone/pairs',
  part='full',
  file='pairs.jsonl',
)
ROWS = [{'task_id': 1, 'text': 'a'}, {'task_id': 'x', 'words': []}]
MBPP_ROW = {
  'task_id': 11,
  'text': 't',
  'code': 'c',
  'test_list': ['assert f()'],
}
HUMANEVAL_ROW = {
  **{'task_id': 'HumanEval/0', 'prompt': 'p', 'entry_point': 'f'},
  **{'canonical_solution': 's', 'test': 't'},
}


def write(path, rows):
  path.write_text(''.join(json.dumps(row) + '\n' for row in rows))
  return str(path)


def test_lines_an_array_and_a_packed_file_hold_the_same_rows(tmp_path):
  lines = write(tmp_path / 'pairs.jsonl', ROWS)
  array = tmp_path / 'pairs.json'
  array.write_text(json.dumps(ROWS, indent=2))
  packed = tmp_path / 'pairs.jsonl.gz'
  packed.write_bytes(gzip.compress((tmp_path / 'pairs.jsonl').read_bytes()))
  for path in (lines, str(array), str(packed)):
    assert [row for _, row in PAIRS.read(path)] == ROWS
  assert PAIRS.read(lines)[1][0] == f'{lines}:2'
  assert PAIRS.digest(lines) == PAIRS.digest(str(packed))
  assert PAIRS.digest(lines) != PAIRS.digest(str(array))


def test_a_published_file_is_known_by_its_hash(tmp_path):
  path = write(tmp_path / 'pairs.jsonl', ROWS)
  content = (tmp_path / 'pairs.jsonl').read_bytes()
  short = hashlib.sha256(content).hexdigest()[:16]
  known = Benchmark(
    **{**vars(PAIRS), 'versions': {short: 'v2'}}  # The file of version 2.
  )
  assert PAIRS.digest(path) == short
  assert known.digest(path) == f'v2 {short}'


@pytest.mark.parametrize(
  ('content', 'message'),
  [
    ('', r'pairs\.jsonl is empty'),
    ('{"task_id": 1, "text": "a"}\n{"task_id"', r'pairs\.jsonl:2: not JSON'),
    ('[{"task_id": 1,\n', r'pairs\.jsonl:2: not JSON'),
    ('[3]', r'pairs\.jsonl: entry 1: expected an object, got int'),
    ('{"text": "a"}', r":1: field 'task_id' must be int, there is none"),
    ('{"task_id": true, "text": "a"}', r"'task_id' must be int, got True"),
    (
      '{"task_id": "x", "words": 3}',
      r"'words' must be list, got 3: expected a",
    ),
    (
      '{"task_id": 1, "text": "a"}\n\n{"task_id": 1, "text": "b"}',
      r'jsonl:3: task_id 1 is also that of .*jsonl:1: remove one',
    ),
  ],
)
def test_bad_content_is_named_with_its_line(tmp_path, content, message):
  path = tmp_path / 'pairs.jsonl'
  path.write_text(content)
  with pytest.raises(DataError, match=message):
    PAIRS.read(str(path))


def test_bytes_that_are_no_text_or_no_archive_are_named(tmp_path):
  path = tmp_path / 'pairs.jsonl'
  path.write_bytes(b'{"task_id": 1, "text": "a"}\n\xff')
  with pytest.raises(DataError, match=r'jsonl:2: no text in UTF-8'):
    PAIRS.read(str(path))
  cut = tmp_path / 'pairs.jsonl.gz'
  cut.write_bytes(gzip.compress(b'{}' * 1000)[:-9])
  for read in (PAIRS.read, PAIRS.digest):
    with pytest.raises(DataError, match=r'jsonl\.gz: no whole gzip file'):
      read(str(cut))


@pytest.mark.parametrize(
  ('benchmark', 'row', 'message'),
  [
    (mbpp.MBPP, HUMANEVAL_ROW, 'expected a row of MBPP .* one of humaneval'),
    (humaneval.HUMANEVAL, MBPP_ROW, 'of HumanEval .* looks like one of mbpp$'),
    (mbpp_sanitized.SANITIZED, MBPP_ROW, 'looks like one of mbpp$'),
    (evalplus.MBPP_PLUS, MBPP_ROW, 'looks like one of mbpp$'),
    (
      evalplus.MBPP_PLUS,
      HUMANEVAL_ROW | {'plus_input': []},
      'looks like one of humaneval_plus$',
    ),
  ],
)
def test_the_file_of_another_benchmark_is_recognised(
  tmp_path, benchmark, row, message
):
  with pytest.raises(DataError, match=message):
    benchmark.read(write(tmp_path / 'x.jsonl', [row]))


def test_a_missing_file_names_both_ways(tmp_path):
  for read in (PAIRS.read, PAIRS.digest):
    with pytest.raises(DataError, match=r'no Pairs file at .*someone/pairs'):
      read(str(tmp_path / 'none.jsonl'))


def test_the_hub_is_asked_where_there_is_no_path(monkeypatch):
  import datasets

  asked = []

  def load_dataset(*names):
    asked.append(names)
    return {'train': ROWS[:1], 'test': ROWS[1:]}

  monkeypatch.setattr(datasets, 'load_dataset', load_dataset)
  assert [where for where, _ in PAIRS.read()] == [
    'someone/pairs:train:1',
    'someone/pairs:test:1',
  ]
  assert len(PAIRS.digest()) == 16
  assert set(asked) == {('someone/pairs', 'full')}


def test_a_file_on_the_hub_is_read_as_it_is(monkeypatch):
  import datasets

  asked = []

  def load_dataset(builder, data_files):
    asked.append((builder, data_files))
    return {'train': [{'name': 'x', 'text': 'a'}] * 2}

  monkeypatch.setattr(datasets, 'load_dataset', load_dataset)
  named = Benchmark(
    **{**vars(PAIRS), 'layouts': ({'name': str},)}
    | {'key': 'name', 'is_file': True}
  )
  with pytest.raises(DataError, match="train:2: name 'x' is also that of .*:1"):
    named.read()
  assert asked == [('json', 'hf://datasets/someone/pairs/pairs.jsonl')]
