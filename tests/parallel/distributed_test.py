"""Sessions, barriers, errors and Slurm, on real processes if needed."""

import json
import re

import pytest

from promptrl_jax.parallel import distributed
from tests.parallel import processes
from tests.variants import mostly_slow

SLURM = {
  'SLURM_JOB_ID': '4711',
  'SLURM_STEP_ID': '2',
  'SLURM_STEP_NUM_TASKS': '6',
  'SLURM_PROCID': '5',
  'SLURM_STEP_NODELIST': 'rack[1-2]node[003,007-015],login1',
}

MEETING = """
import json

with distributed.session(config):
  outputs = {}
  distributed.require_same('config', 'the config')
  try:
    distributed.require_same(f'seed={jax.process_index()}', 'the config')
  except ValueError as error:
    outputs['differs'] = str(error)
  outputs['written'] = distributed.first_only(lambda x: x + 1)(1)
  distributed.barrier('all', 20)
  try:
    if jax.process_index() == 0:
      distributed.barrier('alone', 0.5)
    else:
      next(distributed._barriers)
  except TimeoutError as error:
    outputs['barrier'] = str(error)
  distributed.barrier('again', 20)
  print(json.dumps(outputs))
"""

PARTING = """
from promptrl_jax.parallel import exchange
with distributed.session(config):
  jax.numpy.ones(3).block_until_ready()
  if jax.process_index() == int(ARGS[0]):
    raise ValueError('the planted error')
  exchange.gather_rows(jax.numpy.ones(2))
  print('not reached')
"""

TOGETHER = """
import time
with distributed.session(config):
  distributed.barrier('all', 20)
  time.sleep(0.5 * jax.process_index())
  raise ValueError('what all find')
"""

ALONE = """
import dataclasses
config = dataclasses.replace(config, timeout_s=2)
if config.process == int(ARGS[0]):
  sys.exit(7)
with distributed.session(config):
  print('not reached')
"""


@pytest.fixture(scope='module')
def met():
  done = processes.run(MEETING, 2)
  assert [d.returncode for d in done] == [0, 0], processes.report(done)
  return [json.loads(d.stdout.splitlines()[-1]) for d in done]


def test_a_process_with_another_config_is_named_on_all(met):
  for i, outputs in enumerate(met):
    expected = 'the config of process 1 differs from that of process 0'
    assert outputs['differs'].startswith(f"{expected} (here: 'seed={i}'")


def test_the_first_process_writes(met):
  assert [outputs['written'] for outputs in met] == [2, None]


def test_a_barrier_says_who_waited_and_the_run_goes_on(met):
  assert met[0]['barrier'].startswith(
    "process 0 of 2 waited 0.5 s at 'alone' for the others"
  )
  assert 'barrier' not in met[1]


@pytest.mark.parametrize('process', mostly_slow((0, 1), (0,)))
def test_an_error_in_one_process_ends_both_at_once(process):
  done = processes.run(PARTING, 2, str(process), timeout=60)
  assert done[process].returncode == 1
  assert 'ValueError: the planted error' in done[process].stderr
  assert done[1 - process].returncode not in (0, -9), processes.report(done)
  assert all('not reached' not in d.stdout for d in done)


def test_an_error_that_all_find_is_told_by_all():
  done = processes.run(TOGETHER, 2, timeout=60)
  assert [d.returncode for d in done] == [1, 1], processes.report(done)
  assert all(d.stderr.endswith('ValueError: what all find\n') for d in done)


@pytest.mark.parametrize('absent', mostly_slow((0, 1), {0}))
def test_a_process_that_is_missing_is_waited_for_no_longer_than_said(absent):
  done = processes.run(ALONE, 2, str(absent), timeout=60)
  assert [d.returncode for d in done] == ([7, 1] if absent == 0 else [1, 7])
  message = done[1 - absent].stderr
  assert f'TimeoutError: process {1 - absent} of 2: not all' in message
  assert 'within 2 s' in message


def test_one_process_needs_no_session():
  with distributed.session(None):
    assert distributed.is_first()
    assert distributed.first_only(lambda x: x + 1)(1) == 2
    distributed.barrier('alone', 1)
    distributed.require_same('x', 'it')


def test_slurm_tells_who_this_is_and_where_process_0_runs():
  parsed = distributed.from_slurm(SLURM)
  # 20000 + (7 * 4711 + 2) mod 10000
  assert parsed.coordinator == 'rack1node003:22979'
  assert (parsed.process, parsed.processes) == (5, 6)


@pytest.mark.parametrize(
  ('nodes', 'first'),
  [
    ('node7', 'node7'),
    ('node7,node9', 'node7'),
    ('node[7-9,12]', 'node7'),
    ('node[07,09]-ib,x', 'node07-ib'),
    ('gpu-a[01-02]b[3-4]', 'gpu-a01b3'),
  ],
)
def test_lists_of_nodes_are_read(nodes, first):
  parsed = distributed.from_slurm({**SLURM, 'SLURM_STEP_NODELIST': nodes})
  assert parsed.coordinator == f'{first}:22979'


@pytest.mark.parametrize('name', SLURM)
def test_a_variable_that_slurm_did_not_set_is_named(name):
  environ = {k: v for k, v in SLURM.items() if k != name}
  with pytest.raises(ValueError, match=name):
    distributed.from_slurm(environ)


@pytest.mark.parametrize(
  ('change', 'message'),
  [
    ({'coordinator': 'host'}, "coordinator 'host': expected host:port"),
    ({'process': 2}, 'process 2 of 2: expected'),
    ({'process': -1}, 'process -1 of 2: expected'),
    ({'processes': 0, 'process': 0}, 'process 0 of 0: expected'),
    ({'timeout_s': 0.2}, 'timeout_s must be at least 1 second, got 0.2'),
  ],
)
def test_bad_configs_are_refused(change, message):
  good = {'coordinator': 'host:1', 'processes': 2, 'process': 0}
  with pytest.raises(ValueError, match=re.escape(message)):
    distributed.DistributedConfig(**{**good, **change})
