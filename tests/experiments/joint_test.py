"""Joint training as a user runs it: whole, killed and resumed, bad input."""

import json
import re

import pytest

from promptrl_jax.evaluation.cells import read_csv
from tests.experiments import commands

ARMS = ('both', 'controller', 'rewriter')
SMALL = (
  '--config=configs/joint.py:smoke',
  '--config.data.train_limit=8',
  '--config.data.validation_limit=2',
  '--config.data.test_limit=4',
  '--config.calls=12',
  '--config.calls_per_leg=6',
  '--config.controller.episodes=4',
  '--config.train.rollout.prompts=2',
  '--config.validate_every=2',
  '--config.eval.budgets=(2,4)',
)


def command(workdir, *flags):
  return 'experiments.joint', f'--workdir={workdir}', *SMALL, *flags


def run(workdir, *flags):
  return commands.run(*command(workdir, *flags))


def rows(workdir, arm):
  """Metrics of the training without the times."""
  path = workdir / arm / 'seed_0' / 'metrics.jsonl'
  return [
    {k: v for k, v in json.loads(line).items() if 'time/' not in k}
    for line in path.read_text().splitlines()
  ]


@pytest.fixture(scope='module')
def whole(tmp_path_factory):
  """A run that nothing interrupted."""
  workdir = tmp_path_factory.mktemp('whole')
  result = run(workdir)
  assert result.returncode == 0, result.stderr[-3000:]
  return workdir, result


@pytest.mark.slow
def test_it_leaves_tables_plots_models_and_a_trace(whole):
  workdir, result = whole
  for name in (
    'config.json',
    'results.json',
    'results.md',
    'results.csv',
    'trace.jsonl',
    'solved_at_b.png',
    'curves.png',
    'actions.png',
  ):
    assert (workdir / name).stat().st_size > 0, name
  for arm in ARMS:
    assert list((workdir / arm / 'seed_0').glob('events*'))
    has_model = (workdir / arm / 'seed_0/model/model.safetensors').exists()
    assert has_model == (arm != 'controller')
  strategies = {
    json.loads(line)['strategy'] for line in (workdir / 'trace.jsonl').open()
  }
  assert strategies == {*ARMS, 'direct', 'best_of_b', 'start'}
  assert 'best_validation=' in result.stderr


@pytest.mark.slow
def test_every_arm_stops_at_the_same_coder_calls(whole):
  workdir, result = whole
  training = json.loads((workdir / 'results.json').read_text())['training']
  for arm in ARMS:
    (cost,) = training[arm]
    # Less than an iteration too many: 4 episodes of at most 8 calls.
    assert 12 <= cost['coder calls'] < 12 + 32
    last = rows(workdir, arm)[-1]
    assert last['budget/coder_calls'] == cost['coder calls']
    assert last['budget/rewriter_calls'] == cost['rewriter calls']
    line = rf'\| {arm} \| {cost["coder calls"]} \| {cost["rewriter calls"]} \|'
    assert re.search(line, result.stdout)
  updates = {
    arm: (row['controller updates'] > 0, row['rewriter updates'] > 0)
    for arm, (row,) in training.items()
  }
  assert updates == {
    'both': (True, True),
    'controller': (True, False),
    'rewriter': (False, True),
  }


@pytest.mark.slow
def test_arms_are_compared_at_each_budget_with_paired_statistics(whole):
  workdir, _ = whole
  summary = json.loads((workdir / 'results.json').read_text())
  pairs = {(c['other'], c['budget']) for c in summary['comparisons']}
  rivals = ('controller', 'rewriter', 'start', 'direct', 'best_of_b')
  assert pairs == {(name, budget) for name in rivals for budget in (2, 4)}
  assert {c['subject'] for c in summary['comparisons']} == {'both'}
  by_name = {(c['strategy'], c['budget']): c for c in summary['cells']}
  for cell in read_csv(workdir / 'results.csv'):
    mean = by_name[cell.strategy, cell.budget]['pass']['mean']
    assert mean == pytest.approx(cell.passed.mean())


@pytest.mark.slow
def test_metrics_say_whose_they_are(whole):
  workdir, _ = whole
  names = {name for row in rows(workdir, 'both') for name in row}
  assert {
    'controller/train/loss',
    'controller/rollout/solved_rate',
    'rewriter/train/kl',
    'rewriter/reward/mean',
    'eval/validation_pass',
  } <= names
  shared = {name for name in names if not name.startswith(ARMS)}
  assert shared == {
    'step',
    'rollout/steps',
    'budget/calls',
    'budget/env_steps',
    'budget/coder_calls',
    'budget/rewriter_calls',
    'eval/validation_pass',
  }


# The same `Run` is killed by tests of mbpp_ppo and of two processes every time.
@pytest.mark.slow
def test_kill_and_resume_equals_the_uninterrupted_run(whole, tmp_path):
  reference, _ = whole
  metrics = tmp_path / 'both' / 'seed_0' / 'metrics.jsonl'
  commands.kill_when(lambda: commands.has_rows(metrics, 2), *command(tmp_path))
  assert 2 <= len(metrics.read_text().splitlines()) <= 4
  assert not (tmp_path / 'results.json').exists()
  result = commands.run_fresh(*command(tmp_path))
  assert result.returncode == 0, result.stderr[-3000:]
  for arm in ARMS:
    assert rows(tmp_path, arm) == rows(reference, arm)
  for name in ('results.csv', 'both/seed_0/model/model.safetensors'):
    assert (tmp_path / name).read_bytes() == (reference / name).read_bytes()


@pytest.mark.parametrize(
  ('flags', 'message'),
  [
    (['--config.arms.both=(0,0)'], 'a turn of 0 controller and 0 rewriter'),
    (['--config.arms.both=(1,1,1)'], 'arms.both=(1, 1, 1)'),
    (['--config.calls_per_leg=0'], 'calls_per_leg=0'),
    (['--config.eval.subject=ppo'], "eval.subject='ppo'"),
    (['--config.ppo.anneal=True'], 'ppo.anneal=True'),
    (['--config.train.optimizer.decay=linear'], "optimizer.decay='linear'"),
    (["--config.editing.actions=('keep','resample')"], 'expected semantic'),
    (['--config.train.overlap=True'], 'overlap=True'),
    (['--config.coder.model=/nowhere'], '/nowhere'),
  ],
)
def test_bad_input_is_one_clear_message(tmp_path, flags, message):
  workdir = tmp_path / 'run'
  result = run(workdir, *flags)
  assert result.returncode != 0
  assert message in result.stderr
  assert 'Traceback' not in result.stderr
  assert not (workdir / 'results.json').exists()
