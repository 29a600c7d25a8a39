"""The bench of the runner: its lines add up, and bad names are told."""

import json

import pytest

from tests.experiments import commands


@pytest.mark.slow
def test_parts_of_the_runner_add_up():
  result = commands.run(
    'experiments.bench.runner',
    *('--problems=3', '--budget=2', '--runs=1'),
    '--strategies=greedy_first,mbr_exec',
  )
  assert result.returncode == 0, result.stderr[-2000:]
  *lines, every = [
    json.loads(line)
    for line in result.stdout.splitlines()
    if line.startswith('{')
  ]
  assert [line['strategy'] for line in lines] == ['greedy_first', 'mbr_exec']
  assert every['requests'] == sum(line['requests'] for line in lines) > 6
  assert every['tokens'] == sum(line['tokens'] for line in lines)
  for line in (*lines, every):
    assert line['ratio'] == line['min_ratio'] < line['without_pool']
    parts = ('ratio', 'small_batches', 'cache', 'pool', 'rest')
    assert sum(line[part] for part in parts) == pytest.approx(1, abs=0.003)


@pytest.mark.slow
def test_an_unknown_strategy_is_one_clear_message():
  result = commands.run(
    'experiments.bench.runner', '--strategies=greedy_first,nobody'
  )
  assert result.returncode != 0 and 'Traceback' not in result.stderr
  assert '--strategies=nobody: expected some of direct' in result.stderr
