"""Which tasks an experiment trains on."""

import pytest

from configs import mbpp_ppo
from experiments import data
from promptrl_jax.tasks.minicode import suite


def settings(path):
  config = mbpp_ppo.get_config('minicode').data
  config.train_tasks = str(path)
  return config


def test_training_problems_are_those_that_a_file_names(tmp_path):
  ids = [task.task_id for task in suite.load('train')]
  path = tmp_path / 'ids.txt'
  path.write_text('\n'.join([ids[5], ids[2]]))
  parts = data.load_tasks(settings(path))
  assert [task.task_id for task in parts['train']] == [ids[2], ids[5]]
  assert parts['validation'] == suite.load('validation')


@pytest.mark.parametrize('split', ['validation', 'test', 'none'])
def test_others_are_refused(tmp_path, split):
  path = tmp_path / 'ids.txt'
  path.write_text('' if split == 'none' else suite.load(split)[0].task_id)
  with pytest.raises(ValueError, match='data.train_tasks=.*one on each line'):
    data.load_tasks(settings(path))
