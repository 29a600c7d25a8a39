"""A sweep runs an experiment once per row, in folders of its own."""

import pathlib
import subprocess
import sys

import pytest

from configs import mbpp_ppo
from promptrl_jax import settings
from promptrl_jax.tools import sweep

ROOT = pathlib.Path(__file__).parents[2]


@pytest.mark.parametrize('job', ['mbpp_ppo', 'mbpp_grpo', 'joint', 'prewrite'])
def test_each_row_is_a_command_with_a_folder_of_its_own(job):
  todo = sweep.commands(f'configs/{job}.py:smoke', 'W', ['--config.seed=1'])
  folders = {word for words in todo for word in words if 'workdir' in word}
  assert len(folders) == len(todo) > 2
  assert '--workdir=W/base' in todo[0]
  assert all(words[-1] == '--config.seed=1' for words in todo)


def test_an_argument_may_have_a_sweep_of_its_own():
  rows = sweep.rows('configs/mbpp_ppo.py:mbpp_real')
  assert rows == [{}, *mbpp_ppo.get_hyper('mbpp_real')]
  assert rows[1:] != mbpp_ppo.get_hyper()


def test_values_are_read_as_they_were_meant():
  row = {'editing.actions': ('keep', 'submit'), 'ppo.lr': 0.5}
  assert sweep.name(row) == 'editing.actions=--keep-,--submit--,ppo.lr=0.5'
  config = mbpp_ppo.get_config('smoke')
  config.update_from_flattened_dict(row)
  made = settings.from_mapping(mbpp_ppo.Config, config.to_dict())
  assert made.editing.actions == ('keep', 'submit')


def test_a_config_without_a_sweep_is_refused():
  with pytest.raises(ValueError, match='has no get_hyper'):
    sweep.rows('configs/pretrain_minicode.py:coder')


def test_the_command_prints_what_it_would_run(tmp_path):
  result = subprocess.run(
    [
      *(sys.executable, '-m', 'promptrl_jax.tools.sweep', '--dry_run'),
      f'--workdir={tmp_path}',
      '--config=configs/mbpp_ppo.py:smoke',
    ],
    capture_output=True,
    text=True,
    check=False,
    cwd=ROOT,
    timeout=120,
  )
  assert result.returncode == 0, result.stderr
  lines = result.stdout.splitlines()
  assert len(lines) == 1 + len(mbpp_ppo.get_hyper())
  assert '--config.editing.step_reward.kind=legacy' in lines[1]
