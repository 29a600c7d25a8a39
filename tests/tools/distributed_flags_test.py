"""Flags join a run only when they say so."""

import pytest
from absl import flags

from promptrl_jax.tools import distributed_flags

ALL = ('--coordinator=host:1', '--num_processes=2', '--process_id=1')


def parse(*arguments):
  values = flags.FlagValues()
  distributed_flags.define(values)
  values(['program', *arguments])
  return distributed_flags.config(values)


def test_without_flags_there_is_one_process(monkeypatch):
  monkeypatch.setenv('SLURM_STEP_NUM_TASKS', '8')
  assert parse() is None


def test_flags_say_who_this_is():
  found = parse('--distributed=flags', *ALL, '--join_timeout_s=7')
  assert found.coordinator == 'host:1'
  assert (found.process, found.processes) == (1, 2)
  assert (found.timeout_s, found.heartbeat_s) == (7.0, 100.0)


def test_slurm_says_who_this_is(monkeypatch):
  for name, value in (
    ('JOB_ID', '1'),
    ('STEP_ID', '0'),
    ('STEP_NUM_TASKS', '4'),
    ('PROCID', '3'),
    ('STEP_NODELIST', 'a[1-4]'),
  ):
    monkeypatch.setenv(f'SLURM_{name}', value)
  found = parse('--distributed=slurm', '--heartbeat_s=9')
  assert (found.coordinator, found.process) == ('a1:20007', 3)
  assert found.heartbeat_s == 9.0


@pytest.mark.parametrize('how', ['off', 'slurm'])
def test_a_flag_without_effect_is_refused(how):
  with pytest.raises(ValueError, match='--num_processes has no effect'):
    parse(f'--distributed={how}', '--num_processes=2')


@pytest.mark.parametrize('missing', range(3))
def test_a_missing_flag_is_named(missing):
  given = [flag for i, flag in enumerate(ALL) if i != missing]
  name = ALL[missing].split('=')[0]
  with pytest.raises(ValueError, match=f'needs {name}'):
    parse('--distributed=flags', *given)


def test_slurm_outside_of_a_task_is_refused(monkeypatch):
  monkeypatch.delenv('SLURM_JOB_ID', raising=False)
  with pytest.raises(ValueError, match='SLURM_JOB_ID'):
    parse('--distributed=slurm')
