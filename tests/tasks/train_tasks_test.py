"""Which tasks an experiment trains on."""

import json
import logging

import pytest

from promptrl_jax.tasks import load
from promptrl_jax.tasks.minicode.suite import SUITE
from promptrl_jax.tasks.task_set import DataConfig


def settings(path):
  return DataConfig(train_tasks=str(path))


def test_training_problems_are_those_that_a_file_names(tmp_path):
  ids = [task.task_id for task in SUITE.load('train')]
  path = tmp_path / 'ids.txt'
  path.write_text('\n'.join([ids[5], ids[2]]))
  parts = load.load_tasks(settings(path))
  assert [task.task_id for task in parts['train']] == [ids[2], ids[5]]
  assert parts['validation'] == SUITE.load('validation')


@pytest.mark.parametrize('split', ['validation', 'test', 'none'])
def test_others_are_refused(tmp_path, split):
  path = tmp_path / 'ids.txt'
  path.write_text('' if split == 'none' else SUITE.load(split)[0].task_id)
  with pytest.raises(ValueError, match='data.train_tasks=.*one on each line'):
    load.load_tasks(settings(path))


def mbpp_settings(path, rows):
  lines = [
    {
      'task_id': number,
      'text': text,
      'code': 'def f(x):\n  return x',
      'test_list': [f'assert f({n}) == {n}' for n in (number, 0)],
    }
    for number, text in rows
  ]
  path.write_text(''.join(json.dumps(line) + '\n' for line in lines))
  return DataConfig('mbpp', str(path), test_limit=1)


def test_training_tasks_worded_like_others_are_reported_and_left_out(
  tmp_path, caplog
):
  long = 'Write a function to find all adverbs in a given sentence'
  config = mbpp_settings(
    tmp_path / 'mbpp.jsonl',
    [
      (1, 'Return the third item.'),
      (11, 'Sort the words of a text.'),
      (12, 'Reverse a list.'),
      (511, f'{long}.'),
      (601, 'Reverse: a LIST!'),  # Also where a limit leaves task 12 out.
      (602, f'{long} of words.'),
      (603, 'Return the third item.'),  # Few-shots keep nothing from training.
      (604, 'Add two numbers.'),
    ],
  )
  with caplog.at_level(logging.WARNING):
    parts = load.load_tasks(config)
  assert [t.task_id for t in parts['train']] == ['mbpp/603', 'mbpp/604']
  assert [t.task_id for t in parts['test']] == ['mbpp/11']
  assert '3 pairs' in caplog.text and '2 training tasks' in caplog.text


def test_a_task_in_two_splits_is_refused(tmp_path):
  config = mbpp_settings(
    tmp_path / 'mbpp.jsonl',
    [
      (11, 'Reverse a list.'),
      (511, 'Sort a list.'),
      (601, 'Add two numbers.'),
    ],
  )
  text = (tmp_path / 'mbpp.jsonl').read_text()
  row = json.loads(text.split('\n')[0]) | {'task_id': 602}
  (tmp_path / 'mbpp.jsonl').write_text(text + json.dumps(row) + '\n')
  with pytest.raises(ValueError, match='mbpp/602 .* is also|is also mbpp/602'):
    load.load_tasks(config)


@pytest.mark.parametrize('split', ['train', 'validation', 'test'])
def test_all_tasks_of_minicode_are_kept(tmp_path, split):
  config = DataConfig()
  assert load.load_tasks(config)[split] == SUITE.load(split)
