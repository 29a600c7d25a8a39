"""Each setting of `EvalConfig` changes who plays, or what is played.

A field that is added without a row here fails `test_every_setting_has_a_row`.
"""

import dataclasses

import pytest

from configs.mbpp_ppo import Config, EvalConfig
from experiments import controllers, entrants
from promptrl_jax import settings
from promptrl_jax.envs.editing.config import EditingConfig
from promptrl_jax.evaluation.instruction_search import InstructionSearchConfig
from promptrl_jax.testing import tiny

TASKS = tiny.tasks(4, 'test')
USUAL = Config(
  seeds=2,
  editing=EditingConfig(sees_price=True),
  eval=EvalConfig(oracle_limit=3),
)
# What each changes, of the names that play and of what they play.
CHANGES = {
  'budgets': ('plays', (1, 2)),
  'strategies': ('names', ('mbr_exec',)),
  'without': ('names', ('random',)),
  'oracle': ('plays', False),
  'oracle_limit': ('plays', 2),
  'bandits': ('names', False),
  'thompson': ('names', True),
  'token_prices': ('names', (0.5,)),
  'shuffled': ('names', True),
  'instruction_search': ('names', InstructionSearchConfig(calls=900)),
}
# These play nothing else: see `statistics_test.py`, `remembering_test.py` and
# `allocation_test.py`.
BESIDE = 'resamples', 'reflections', 'allocation'


def test_every_setting_has_a_row():
  assert {*settings.fields(EvalConfig)} == {*CHANGES, *BESIDE}


def line_up(**changes):
  config = dataclasses.replace(
    USUAL, eval=dataclasses.replace(USUAL.eval, **changes)
  )
  seeds = list(range(config.seeds))
  plans = entrants.plans(config, TASKS, seeds)
  plans += entrants.parity_plans(config, TASKS, seeds)
  return {
    'names': sorted(entrants.costs(config, controllers.names(config))),
    'plays': [(p.protocol, p.budget, p.tasks, p.seeds) for p in plans],
  }


@pytest.mark.parametrize('name', CHANGES)
def test_a_setting_changes_what_it_says(name):
  what, value = CHANGES[name]
  usual, other = line_up(), line_up(**{name: value})
  assert {key for key in usual if usual[key] != other[key]} == {what}


def test_the_parity_table_has_the_first_problems_and_one_seed():
  *_, (protocol, calls, tasks, seeds) = line_up()['plays']
  assert (protocol, calls, tasks, seeds) == ('oracle', 10, TASKS[:3], [0])
  assert line_up(oracle_limit=0)['plays'][-1][2] == TASKS
