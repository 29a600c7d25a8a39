"""How peers are asked and compared, without any of them."""

import ast
import json
import pathlib
import sys

import pytest

from experiments.bench import sampling as bench_sampling
from experiments.bench.peers import launch, workload

PEERS = pathlib.Path(launch.__file__).parent
DRIVERS = [p for p in sorted(PEERS.glob('*.py')) if p.name != 'launch.py']
WORK = workload.Workload(
  size='small',
  shape={'vocab_size': 50},
  prompt=4,
  new=2,
  batches=[1, 3],
  dtypes=['float32'],
  runs=2,
  limit_s=60,
)


def test_a_workload_survives_the_command_line(monkeypatch):
  line = launch.command('tunix', '/env/bin/python', WORK)
  assert line[0] == '/env/bin/python'
  assert pathlib.Path(line[1]).is_file()
  monkeypatch.setattr(sys, 'argv', line[1:])
  assert workload.read() == WORK


@pytest.mark.parametrize('limit_s, calls', [(60, 3), (0, 2)])
def test_each_batch_is_one_line(capsys, limit_s, calls):
  asked = []

  def sample(prompts):
    asked.append(prompts)
    return [[7, 8] for _ in prompts]

  work = WORK._replace(limit_s=limit_s)
  workload.measure(work, 'peer', sample, dtype='float32')
  lines = [json.loads(text) for text in capsys.readouterr().out.splitlines()]
  assert [line['batch'] for line in lines] == [1, 3]
  assert all(line['runs'] == calls - 1 for line in lines)
  assert [len(prompts) for prompts in asked] == [1] * calls + [3] * calls
  assert {len(ids) for prompts in asked for ids in prompts} == {4}


def test_completions_that_end_early_do_not_count():
  with pytest.raises(ValueError, match=r'peer: lengths \[1\], asked for 2'):
    workload.measure(WORK, 'peer', lambda prompts: [[7] for _ in prompts])


def test_a_peer_that_is_not_there_is_skipped(capsys, monkeypatch):
  gone = launch.PEERS['tunix']._replace(package='no_such_package')
  monkeypatch.setitem(launch.PEERS, 'tunix', gone)
  assert not launch.installed('tunix', sys.executable)
  assert 'pip install google-tunix==0.1.7' in capsys.readouterr().err
  here = gone._replace(package='json')
  monkeypatch.setitem(launch.PEERS, 'tunix', here)
  assert launch.installed('tunix', sys.executable)


def test_lines_are_read_and_a_failure_is_raised():
  script = "print('noise'); print('{\"a\": 1}')"
  assert launch.lines([sys.executable, '-c', script]) == [{'a': 1}]
  with pytest.raises(RuntimeError, match='failed'):
    launch.lines([sys.executable, '-c', 'raise SystemExit(3)'])


def test_the_best_ways_are_compared():
  mine = [
    {'batch': 1, 'tokens_per_s': 10.0},
    {'batch': 1, 'tokens_per_s': 30.0},
    {'batch': 8, 'tokens_per_s': 90.0},
  ]
  theirs = [
    {'batch': 1, 'tokens_per_s': 20.0},
    {'batch': 8, 'tokens_per_s': 45.0},
    {'batch': 8, 'tokens_per_s': 40.0},
  ]
  assert bench_sampling.ratios('small', 'vllm', mine, theirs) == [
    {'size': 'small', 'batch': 1, 'over_vllm': 1.5},
    {'size': 'small', 'batch': 8, 'over_vllm': 2.0},
  ]


@pytest.mark.parametrize('path', DRIVERS, ids=lambda p: p.name)
def test_drivers_import_nothing_of_this_project(path):
  for node in ast.walk(ast.parse(path.read_text(encoding='utf-8'))):
    if isinstance(node, ast.ImportFrom):
      names = [node.module or '']
    elif isinstance(node, ast.Import):
      names = [alias.name for alias in node.names]
    else:
      continue
    tops = {name.split('.')[0] for name in names}
    assert not tops & {'promptrl_jax', 'experiments'}, path
