"""The table of task sets: every set, plug-ins, and settings that are wrong."""

import json

import pytest

from promptrl_jax.tasks import load
from promptrl_jax.tasks.mbpp import DataError
from promptrl_jax.tasks.task_set import DataConfig
from promptrl_jax.testing import tiny
from promptrl_jax.types import Answers, Task, UnitTests


@pytest.fixture
def table(monkeypatch):
  monkeypatch.setattr(load.TASK_SETS, '_plugins', dict(load.TASK_SETS))
  return load.TASK_SETS


def write(path, rows):
  path.write_text(''.join(json.dumps(row) + '\n' for row in rows))
  return str(path)


def questions(tmp_path, count=20, **options):
  rows = [{'question': f'What is {i}?', 'answer': i} for i in range(count)]
  path = write(tmp_path / 'x.jsonl', rows)
  config = DataConfig(name='questions', path=path, options=options)
  return load.load_tasks(config)


def test_the_embedded_suite_has_unit_tests_and_practice():
  parts = load.load_tasks(DataConfig(train_limit=5, validation_limit=3))
  assert list(parts) == ['train', 'validation', 'test']
  assert [len(parts['train']), len(parts['validation'])] == [5, 3]
  for split, tasks in parts.items():
    assert all(isinstance(task.checker, UnitTests) for task in tasks)
    assert {task.split for task in tasks} == {split}
  practice = load.TASK_SETS['minicode'].practice
  assert practice({task.task_id for task in parts['train']})
  assert load.describe(DataConfig()).startswith('minicode ')


def test_parts_of_an_instruction_have_disjoint_examples():
  config = DataConfig(
    name='minicode_instructions', options={'train_examples': 8}
  )
  parts = load.load_tasks(config)
  assert list(parts) == ['train', 'validation', 'dev', 'test']
  ids = {split: [t.task_id for t in tasks] for split, tasks in parts.items()}
  assert ids['train'] == ids['dev'] == ids['test']
  assert parts['train'][0].register and parts['train'][0].canonical


def test_questions_of_one_file_are_split_by_share_and_seed(tmp_path):
  parts = questions(tmp_path)
  assert [len(tasks) for tasks in parts.values()] == [16, 2, 2]
  ids = [task.task_id for tasks in parts.values() for task in tasks]
  assert len(set(ids)) == 20
  assert parts == questions(tmp_path)
  assert parts != questions(tmp_path, seed=1)
  task = parts['train'][0]
  number = task.statement.split()[-1].rstrip('?')
  assert task.checker == Answers((number,), 'em')
  assert task.task_id == f'x.jsonl:{int(number) + 1}'


def test_questions_may_have_other_columns_and_a_file_for_each_split(tmp_path):
  for split, text in (('train', 'a'), ('validation', 'b'), ('test', 'c')):
    rows = [{'q': f'{text}?', 'a': [text, text * 2]}]
    write(tmp_path / f'{split}.jsonl', rows)
  options = {'question': 'q', 'answer': 'a', 'metric': 'accuracy'}
  config = DataConfig(name='questions', path=str(tmp_path), options=options)
  parts = load.load_tasks(config)
  (task,) = parts['test']
  assert task.statement == 'c?'
  assert task.checker == Answers(('c', 'cc'), 'accuracy', ('c', 'cc'))
  before = load.describe(config)
  write(tmp_path / 'test.jsonl', [{'q': 'other?', 'a': 'x'}])
  assert load.describe(config) != before


def test_questions_may_be_examples_of_one_instruction(tmp_path):
  parts = questions(tmp_path, instruction='Answer.', metric='numeric')
  assert {task.task_id for (task,) in parts.values()} == {'questions'}
  (train,) = parts['train']
  assert train.statement == 'Answer.'
  assert len(train.checker.examples) == 16


@pytest.mark.parametrize(
  ('row', 'message'),
  [
    ({'question': 'x'}, r"x\.jsonl:2: no column 'answer'; there are question"),
    ({'question': 'x', 'answer': None}, r'x\.jsonl:2: expected a text'),
    ({'question': 3, 'answer': 'x'}, r'x\.jsonl:2: expected a text'),
    ({'question': 'x', 'answer': []}, r'x\.jsonl:2: expected a text'),
  ],
)
def test_a_bad_question_is_refused_with_its_line(tmp_path, row, message):
  good = {'question': 'Who?', 'answer': 'me'}
  write(tmp_path / 'x.jsonl', [good, row, {'question': 'c', 'answer': 'c'}])
  with pytest.raises(DataError, match=message):
    load.load_tasks(DataConfig(name='questions', path=f'{tmp_path}/x.jsonl'))


def test_a_question_in_two_splits_is_refused(tmp_path):
  for split in ('train', 'validation', 'test'):
    write(tmp_path / f'{split}.jsonl', [{'question': 'a?', 'answer': 'a'}])
  with pytest.raises(ValueError, match='is also'):
    load.load_tasks(DataConfig(name='questions', path=str(tmp_path)))


def test_a_registered_set_is_loaded_under_its_name(table):
  seen = []

  def load_split(split, config):
    seen.append(config.options)
    return [Task(f'own/{split}', f'Say {split}.', Answers((split,)))]

  load.register('own', load=load_split, digest=lambda config: 'abc')
  parts = load.load_tasks(DataConfig(name='own'))
  assert [t.split for (t,) in parts.values()] == ['train', 'validation', 'test']
  assert load.describe(DataConfig(name='own')) == 'own abc'
  assert load.TASK_SETS['own'].practice({'x'}) == ()
  with pytest.raises(ValueError, match="'own' is registered already"):
    load.register('own', load=load_split)
  assert list(load.load_tasks(DataConfig(name='own'), ['test'])) == ['test']


def test_a_set_whose_splits_share_a_task_is_refused(table):
  load.register('own', load=lambda split, config: tiny.tasks(2))
  with pytest.raises(ValueError, match=r"tiny/train/0 of '.*' is also"):
    load.load_tasks(DataConfig(name='own'))


@pytest.mark.parametrize(
  ('fields', 'message'),
  [
    ({}, 'has the fields none: expected load'),
    ({'digest': str}, 'has the fields digest: expected load'),
    ({'load': lambda split, config: [], 'digits': 3}, 'others of load, digest'),
    ({'load': lambda split: []}, 'load must be a function of 2'),
    (
      {'load': lambda split, config: [], 'digest': lambda: ''},
      'digest must be a function of 1',
    ),
  ],
)
def test_a_plug_in_with_other_fields_is_refused_where_it_is_registered(
  table, fields, message
):
  with pytest.raises(ValueError, match=message):
    load.register('own', **fields)
  assert 'own' not in table


@pytest.mark.parametrize(
  ('settings', 'message'),
  [
    (
      {'name': 'human_eval'},
      "'human_eval': expected one of minicode, minicode2, mbpp",
    ),
    ({'protocol': 'all'}, "data.protocol='all'"),
    ({'options': {'x': 1}}, 'data.options.x: no such .* one of none'),
    ({'name': 'questions'}, 'data.path is empty'),
    (
      {'name': 'questions', 'options': {'test_share': 1.0}},
      'test_share=1.0: expected shares',
    ),
    (
      {'name': 'questions', 'options': {'x': 1}},
      'options.x: .* one of question',
    ),
    ({'name': 'instructions'}, 'data.options.train is empty'),
  ],
)
def test_settings_that_make_no_sense_are_refused(settings, message):
  with pytest.raises(ValueError, match=message):
    load.load_tasks(DataConfig(**settings))
