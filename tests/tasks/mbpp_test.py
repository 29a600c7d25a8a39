"""The MBPP loader: official splits, setup code, clear errors."""

import json
import os
import pathlib

import pytest

from promptrl_jax.execution import ExecutionPool, Limits, Program
from promptrl_jax.tasks import mbpp

ROOT = pathlib.Path(__file__).parents[2]
DATA = pathlib.Path(
  os.environ.get('PROMPTRL_MBPP', ROOT / '../shared/data/mbpp/mbpp.jsonl')
)
needs_data = pytest.mark.skipif(
  not DATA.is_file(), reason='no MBPP file: set PROMPTRL_MBPP'
)
ROW = {
  'task_id': 11,
  'text': 'Write a function to add one.',
  'code': 'def inc(x):\n  return x + 1',
  'test_list': ['assert inc(1) == 2', 'assert inc(2) == 3'],
  'test_setup_code': '',
}


def write(tmp_path, *lines):
  path = tmp_path / 'mbpp.jsonl'
  path.write_text('\n'.join(lines) + '\n', encoding='utf-8')
  return str(path)


@needs_data
@pytest.mark.parametrize(
  ('split', 'first', 'last'),
  [
    ('prompt', 1, 10),
    ('test', 11, 510),
    ('validation', 511, 600),
    ('train', 601, 974),
  ],
)
def test_official_splits(split, first, last):
  tasks = mbpp.load(split, str(DATA))
  ids = [int(task.task_id.removeprefix('mbpp/')) for task in tasks]
  assert ids == list(range(first, last + 1))


@needs_data
def test_setup_code_is_honoured():
  tasks = {t.task_id: t for t in mbpp.load('test', str(DATA))}
  task = tasks['mbpp/367']
  assert task.setup
  program = Program(task.reference, task.tests, task.setup)
  broken = Program(task.reference, task.tests)
  with ExecutionPool(workers=1, limits=Limits(cpu_s=2)) as pool:
    results = pool.run([program, broken])
  assert [r.passed for r in results] == [True, False]


@needs_data
def test_signatures_name_the_function_under_test():
  for split in mbpp.SPLITS:
    for task in mbpp.load(split, str(DATA)):
      assert task.signature.startswith(f'def {task.entry_point}(')
      assert task.signature.endswith('):')


def test_a_line_that_is_not_json_is_named(tmp_path):
  path = write(tmp_path, json.dumps(ROW), '{"task_id": 12,')
  with pytest.raises(mbpp.DataError, match=r'mbpp\.jsonl:2: not JSON'):
    mbpp.load('test', path)


@pytest.mark.parametrize('field', ['task_id', 'text', 'code', 'test_list'])
def test_a_missing_field_is_named(tmp_path, field):
  row = {k: v for k, v in ROW.items() if k != field}
  with pytest.raises(mbpp.DataError, match=f':1: field {field!r} must be'):
    mbpp.load('test', write(tmp_path, json.dumps(row)))


def test_a_task_without_tests_is_named(tmp_path):
  path = write(tmp_path, json.dumps(ROW | {'test_list': []}))
  with pytest.raises(mbpp.DataError, match='task 11 has no tests'):
    mbpp.load('test', path)


def test_an_empty_split_is_refused(tmp_path):
  path = write(tmp_path, json.dumps(ROW))
  with pytest.raises(mbpp.DataError, match="no task of split 'train'"):
    mbpp.load('train', path)


def test_an_empty_file_is_refused(tmp_path):
  with pytest.raises(mbpp.DataError, match='is empty'):
    mbpp.load('test', write(tmp_path, ''))


def test_a_missing_file_names_both_ways():
  with pytest.raises(mbpp.DataError, match=r'data\.path.*download'):
    mbpp.load('test', '/nowhere/mbpp.jsonl')


def test_offline_the_error_names_both_ways(monkeypatch):
  import datasets

  def offline(*unused):
    raise ConnectionError('no network')

  monkeypatch.setattr(datasets, 'load_dataset', offline)
  with pytest.raises(mbpp.DataError, match=r'data\.path=.*hub'):
    mbpp.load('test')


def test_an_unknown_split_is_refused():
  with pytest.raises(mbpp.DataError, match="'dev'"):
    mbpp.load('dev', '/nowhere')
