"""The sweep of a config file becomes cells with folders of their own."""

import pathlib
import sys
import types

import pytest

from configs import mbpp_ppo
from launch import expand as expand_lib
from launch.expand import expand, name
from promptrl_jax import settings

W = pathlib.Path('W')


@pytest.mark.parametrize('job', ['mbpp_ppo', 'mbpp_grpo', 'joint', 'prewrite'])
def test_each_row_is_a_command_with_a_folder_of_its_own(job):
  cells = expand(f'configs/{job}.py:smoke', W, ['--config.seed=1'], 'python')
  assert len({cell.workdir for cell in cells}) == len(cells) > 2
  for cell in cells:
    assert cell.command[:3] == ('python', '-m', f'experiments.{job}')
    assert f'--workdir={cell.workdir}' in cell.command
    assert '--config.seed=1' in cell.command
  assert cells[0].name == 'base' and not cells[0].deviations


def test_an_argument_may_have_a_sweep_of_its_own():
  cells = expand('configs/mbpp_ppo.py:mbpp_real', W, [], 'python')
  rows = [cell.deviations for cell in cells]
  assert rows == [{}, *mbpp_ppo.get_hyper('mbpp_real')]
  assert rows[1:] != mbpp_ppo.get_hyper()


def test_without_an_argument_the_sweep_is_that_of_the_default():
  cells = expand('configs/mbpp_ppo.py', W, [], 'python')
  rows = [cell.deviations for cell in cells]
  assert rows == [{}, *mbpp_ppo.get_hyper('minicode2')]


def test_a_cell_knows_all_values_that_the_sweep_varies():
  base, *others = expand('configs/mbpp_ppo.py:mbpp_real', W, [], 'python')
  assert base.settings['clone.entropy_coef'] == 0.1
  assert others[0].settings['clone.entropy_coef'] == 0.5
  assert {frozenset(cell.settings) for cell in others} == {
    frozenset(base.settings)
  }


def test_values_are_read_as_they_were_meant():
  row = {'editing.actions': ('keep', 'submit'), 'ppo.lr': 0.5}
  assert name(row) == 'editing.actions=--keep-,--submit--,ppo.lr=0.5'
  config = mbpp_ppo.get_config('smoke')
  config.update_from_flattened_dict(row)
  made = settings.from_mapping(mbpp_ppo.Config, config.to_dict())
  assert made.editing.actions == ('keep', 'submit')


def test_a_long_name_is_cut_and_stays_unique():
  names = {name({'a': 'x' * 300 + end}) for end in 'bc'}
  assert len(names) == 2 and all(len(text) < 200 for text in names)


@pytest.mark.parametrize(
  ('config', 'message'),
  [
    ('configs/pretrain_minicode.py:coder', 'has no get_hyper'),
    ('configs/nothing.py', 'expected a file of'),
    ('launch/sweep.py', 'expected a file of'),
    ('configs/mbpp_ppo.py:nothing', 'expected one of smoke'),
  ],
)
def test_a_config_without_a_sweep_is_refused(config, message):
  with pytest.raises(ValueError, match=message):
    expand(config, W, [], 'python')


def test_a_flag_that_would_hide_a_deviation_is_refused():
  more = ['--config.editing.observation=rich']
  with pytest.raises(ValueError, match=r'sweeps config\.editing\.observation'):
    expand('configs/mbpp_ppo.py:smoke', W, more, sys.executable)


@pytest.mark.parametrize(
  ('rows', 'message'),
  [
    ([{'ppo.rate': 1}], r'ppo\.rate, which is no setting'),
    ([{'ppo.lr.x': 1}], r'ppo\.lr\.x, which is no setting'),
    ([{'ppo.lr': 1.0}, {'ppo.lr': 1.0}], 'more than once'),
  ],
)
def test_rows_that_cannot_be_meant_are_refused(rows, message, monkeypatch):
  module = types.SimpleNamespace(
    get_hyper=lambda: rows, get_config=mbpp_ppo.get_config
  )
  monkeypatch.setattr(expand_lib, '_load', lambda path: module)
  with pytest.raises(ValueError, match=message):
    expand('configs/mbpp_ppo.py', W, [], 'python')
