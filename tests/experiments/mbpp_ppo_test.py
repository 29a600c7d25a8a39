"""The main job as a user runs it: whole, killed and resumed, with bad input."""

import collections
import csv
import json
import re
import shutil

import numpy as np
import pytest

from promptrl_jax.evaluation import open_loop
from promptrl_jax.training import workdir as workdir_lib
from tests.experiments import commands

SMALL = (
  '--config=configs/mbpp_ppo.py:smoke',
  '--config.data.train_limit=8',
  '--config.data.validation_limit=4',
  '--config.data.test_limit=6',
  '--config.controller.episodes=4',
  '--config.controller.iterations=4',
  '--config.controller.continuations=2',
  '--config.controller.clone=True',
  '--config.ppo.lr=1e-3',
  '--config.patience=4',  # Validates the start, and ends nothing early.
  '--config.eval.budgets=(2,)',
  '--config.eval.shuffled=True',
  '--config.eval.thompson=True',
)


def command(workdir, *flags):
  return 'experiments.mbpp_ppo', f'--workdir={workdir}', *SMALL, *flags


def run(workdir, *flags):
  return commands.run(*command(workdir, *flags))


def rows(workdir):
  """Metrics of the training without the times."""
  lines = (workdir / 'seed_0' / 'metrics.jsonl').read_text().splitlines()
  return [
    {k: v for k, v in json.loads(line).items() if not k.startswith('time/')}
    for line in lines
  ]


@pytest.fixture(scope='module')
def whole(tmp_path_factory):
  """A run that nothing interrupted."""
  workdir = tmp_path_factory.mktemp('whole')
  result = run(workdir)
  assert result.returncode == 0, result.stderr[-3000:]
  return workdir, result


def test_it_leaves_what_the_readme_says(whole):
  workdir, result = whole
  for name in (
    'config.json',
    'results.json',
    'results.md',
    'results.csv',
    'report.html',
    'trace.jsonl',
    'solved_at_b.png',
    'learning_curve.png',
    'learning.json',
    'actions.png',
    'action_usage.png',
  ):
    assert (workdir / name).stat().st_size > 0, name
  assert list((workdir / 'seed_0').glob('events*'))
  for word in ('direct', 'best_of_b', 'best_fixed', 'random', 'ppo'):
    assert word in result.stdout
  assert 'rewriter' in result.stdout and 'TensorBoard' in result.stdout


def test_settings_that_flags_override_are_written_down(whole):
  job, settings = workdir_lib.load_config(whole[0])
  assert job == 'mbpp_ppo'
  assert settings['ppo']['lr'] == 1e-3
  assert settings['controller']['episodes'] == 4
  assert settings['eval']['budgets'] == [2]


def test_what_takes_long_says_how_far_it_is(whole):
  _, result = whole
  for name in (
    'search',
    'train seed 0',
    'bandit seed 0',
    'bandit_mc seed 0',
    'thompson seed 0',
  ):
    assert f'{name}: ' in result.stderr, name
  assert 'solved=' in result.stderr


def test_the_trace_has_every_step_and_no_hidden_test(whole):
  workdir, _ = whole
  from promptrl_jax.tasks import splits
  from promptrl_jax.tasks.minicode.suite import SUITE

  trace = [json.loads(x) for x in (workdir / 'trace.jsonl').open()]
  strategies = {row['strategy'] for row in trace}
  assert {'direct', 'random', 'lexical', 'semantic', 'ppo'} <= strategies
  tasks = {t.task_id: t for t in SUITE.load('test')[:6]}
  assert {row['task_id'] for row in trace} == set(tasks)
  for row in trace:
    assert {
      'prompt',
      'sent',
      'code',
      'status',
      'feedback',
      'action',
      'reward',
    } <= set(row)
    inputs = json.dumps([row['prompt'], row['sent']])
    for hidden in splits.hidden_tests(tasks[row['task_id']], 'visible1'):
      assert json.dumps(hidden)[1:-1] not in inputs


def test_numbers_of_the_table_come_from_the_csv(whole):
  workdir, _ = whole
  from promptrl_jax.evaluation.cells import read_csv

  table = json.loads((workdir / 'results.json').read_text())['tables'][
    'visible1'
  ]
  by_name = {(c['strategy'], c['budget']): c for c in table['cells']}
  for cell in read_csv(workdir / 'results.csv'):
    mean = by_name[cell.strategy, cell.budget]['pass']['mean']
    assert mean == pytest.approx(cell.passed.mean())


def test_the_score_that_chose_the_controller_stands_beside_that_on_test(whole):
  workdir, _ = whole
  results = json.loads((workdir / 'results.json').read_text())
  by_name = {row['strategy']: row for row in results['selection']}
  name = 'eval/validation_pass'
  validated = [row[name] for row in rows(workdir) if name in row]
  assert by_name['ppo']['chosen'] == max(validated)
  tested = [
    cell['pass']['mean']
    for cell in results['tables']['visible1']['cells']
    if cell['strategy'] == 'ppo'
  ]
  assert by_name['ppo']['test'] == pytest.approx(sum(tested) / len(tested))
  assert 'best_open_loop' in by_name


def test_calls_paid_once_hold_search_demonstration_and_training(whole):
  workdir, _ = whole
  table = json.loads((workdir / 'results.json').read_text())['tables'][
    'visible1'
  ]
  paid = {c['strategy']: c['optimisation_calls'] for c in table['cells']}
  trained = sum(row['budget/calls'] for row in rows(workdir))
  demonstrated = paid['ppo'] - paid['best_open_loop'] - trained
  assert 4 <= demonstrated <= 8 * 4  # a list of at most 4 calls, 8 problems


def test_the_csv_says_how_each_problem_was_played(whole):
  workdir, _ = whole
  trace = [json.loads(x) for x in (workdir / 'trace.jsonl').open()]
  with open(workdir / 'results.csv', newline='') as file:
    lines = list(csv.DictReader(file))
  keys = [(r['strategy'], r['budget'], r['seed'], r['id']) for r in lines]
  assert len(keys) == len(set(keys))
  by_run = collections.defaultdict(list)
  for row in trace:
    by_run[row['strategy'], str(row['budget']), row['task_id']].append(row)
  for line in lines:
    if line['strategy'] == 'best_fixed':  # another row's cell, renamed
      continue
    steps = by_run[line['strategy'], line['budget'], line['id']]
    assert line['actions'] == ' '.join(row['action'] for row in steps)
    assert float(line['reward']) == pytest.approx(
      sum(row['reward'] for row in steps)
    )
    assert set(line['mask']) <= {'0', '1'}
    assert int(line['pass']) == ('0' not in line['mask'])


def test_the_table_can_be_made_again_from_the_csv(whole):
  workdir, _ = whole
  done = commands.run(
    'promptrl_jax.tools.report', str(workdir), '--resamples=1000'
  )
  assert done.returncode == 0, done.stderr[-2000:]
  printed = (workdir / 'results.md').read_text()
  of_the_csv, _ = printed.split('### What became of the programs')
  rows_of_ppo = [r for r in of_the_csv.splitlines() if r.startswith('| ppo ')]
  assert rows_of_ppo and all(row in done.stdout for row in rows_of_ppo)


def test_episodes_are_shown_with_what_the_hidden_tests_say(whole):
  workdir, _ = whole
  result = commands.run(
    'promptrl_jax.tools.episodes',
    str(workdir),
    '--strategy=direct',
    '--budget=2',
    '--count=6',
  )
  assert result.returncode == 0, result.stderr[-3000:]
  assert result.stdout.count('\n**1. `') == 6
  assert result.stdout.count('The hidden tests:') == result.stdout.count(
    'The visible tests: passed'
  )
  (shown, *_) = result.stdout.split('The hidden tests:')[1:]
  assert re.search(r'\nassert .*  # (passed|failed)', shown)


@pytest.mark.slow
def test_kill_and_resume_equals_the_uninterrupted_run(whole, tmp_path):
  reference, _ = whole
  metrics = tmp_path / 'seed_0' / 'metrics.jsonl'
  commands.kill_when(lambda: commands.has_rows(metrics, 2), *command(tmp_path))
  result = commands.run_fresh(  # With its settings as they were saved.
    'experiments.mbpp_ppo',
    f'--config=configs/saved.py:{tmp_path}',
    f'--workdir={tmp_path}',
  )
  assert result.returncode == 0, result.stderr[-3000:]
  assert rows(tmp_path) == rows(reference)
  results = 'results.csv'
  assert (tmp_path / results).read_text() == (reference / results).read_text()


# The run that is killed and resumed evaluates anew, too.
@pytest.mark.slow
def test_evaluation_alone_gives_the_same_numbers(whole):
  workdir, _ = whole
  before = (workdir / 'results.csv').read_text()
  result = run(workdir, '--mode=eval')
  assert result.returncode == 0, result.stderr[-3000:]
  assert (workdir / 'results.csv').read_text() == before


@pytest.mark.slow
def test_a_part_of_a_split_is_played_by_the_checkpoint_that_is_asked_for(
  whole,
):
  workdir, _ = whole
  before = (workdir / 'results.csv').read_text()
  result = run(
    workdir,
    '--mode=eval',
    '--split=ood',
    '--checkpoint=last',
    '--problems=3',
  )
  assert result.returncode == 0, result.stderr[-3000:]
  folder = workdir / 'eval' / 'ood_last_3'
  problems = json.loads((folder / 'problems.json').read_text())
  assert len(problems) == 3
  for problem in problems:
    strategies = {row['strategy'] for row in problem['results']}
    played = {
      'direct',
      'ppo',
      'ppo_shuffled',
      'bandit',
      'thompson',
      'best_fixed',
    }
    assert played <= strategies
    assert all(row['soft'] <= 1.0 for row in problem['results'])
  header = json.loads((folder / 'results.json').read_text())['header']
  assert (header['split'], header['checkpoint']) == ('ood', 'last')
  assert (workdir / 'results.csv').read_text() == before


def test_flags_of_an_evaluation_are_refused_in_training(tmp_path):
  result = run(tmp_path, '--split=validation')
  assert result.returncode != 0
  assert '--mode=eval' in result.stderr
  assert 'Traceback' not in result.stderr


@pytest.fixture(scope='module')
def published(whole, tmp_path_factory):
  """What it takes of a run to play its controllers: no checkpoints."""
  workdir = tmp_path_factory.mktemp('published')
  (workdir / 'seed_0').mkdir()
  names = 'config.json', 'results.json', 'searched.json', 'seed_0/metrics.jsonl'
  for name in names:
    shutil.copy(whole[0] / name, workdir / name)
  for path in (whole[0] / 'seed_0').glob('*.npz'):
    shutil.copy(path, workdir / 'seed_0')
  return workdir


@pytest.fixture(scope='module')
def transferred(published, tmp_path_factory):
  """The controllers of the whole run, played with another model as coder."""
  workdir = tmp_path_factory.mktemp('transferred')
  result = run(
    workdir,
    '--mode=eval',
    f'--controllers={published}',
    '--config.coder.model=minicode_rewriter',
  )
  assert result.returncode == 0, result.stderr[-3000:]
  return workdir, result


def compare(*workdirs):
  return commands.run_fresh('promptrl_jax.tools.compare_models', *workdirs)


def cells(line):
  return [cell.strip() for cell in line.strip('|').split('|')]


@pytest.mark.slow
def test_controllers_play_with_another_coder_and_both_stand_in_one_table(
  whole, transferred
):
  workdir, result = transferred
  table = (workdir / 'transfer.md').read_text()
  assert table in result.stdout
  of_whole, of_transfer = map(cells, table.splitlines()[-2:])
  assert of_whole[0].startswith('minicode_coder@')
  other, _, trained_with = of_transfer[0].partition(', controllers of ')
  assert other.startswith('minicode_rewriter@')
  assert trained_with == of_whole[0]
  # A rewriter writes no programs.
  assert float(of_transfer[-1].split()[0]) == 0 < float(of_whole[2].split()[0])
  assert (
    'controllers of `minicode_coder@' in (workdir / 'results.md').read_text()
  )
  # Nothing was trained, here or there; another coder has other best lists.
  assert not list(workdir.glob('seed_*'))
  # The page shows how they were trained elsewhere.
  here, there = (
    [
      [one for one in panel['learners'] if one['name'] == 'ppo']
      for panel in json.loads((folder / 'learning.json').read_text())
    ]
    for folder in (workdir, whole[0])
  )
  assert here == there and here[0]
  assert (workdir / 'searched.json').exists()
  trace = [json.loads(x) for x in (workdir / 'trace.jsonl').open()]
  assert {'ppo', 'bandit'} <= {row['strategy'] for row in trace}


@pytest.mark.slow
def test_two_runs_with_two_models_stand_in_one_table(whole, transferred):
  result = compare(whole[0], transferred[0])
  assert result.returncode == 0, result.stderr
  assert result.stdout == (transferred[0] / 'transfer.md').read_text()
  nowhere = compare(whole[0], whole[0] / 'nowhere')
  assert nowhere.returncode != 0 and 'Traceback' not in nowhere.stderr
  assert 'nowhere/results.json does not exist' in nowhere.stderr


@pytest.mark.slow
def test_a_strategy_is_compared_with_itself_in_another_run(whole, transferred):
  arguments = str(transferred[0]), '--resamples=1000', f'--beside={whole[0]}'
  result = commands.run('promptrl_jax.tools.report', *arguments)
  assert result.returncode == 0, result.stderr[-2000:]
  shown = {
    line.split('|')[1].strip()
    for line in result.stdout.splitlines()
    if line.startswith('| ppo')
  }
  assert shown == {'ppo', 'ppo (other run)'}
  result = commands.run(
    'promptrl_jax.tools.report', *arguments, '--subject=nobody'
  )
  assert result.returncode != 0
  assert "'nobody' has no budget in both runs" in result.stderr


@pytest.mark.slow
def test_a_policy_plays_the_same_from_its_file_and_from_its_checkpoint(
  whole, tmp_path
):
  other = tmp_path / 'other'
  shutil.copytree(whole[0], other)
  (other / 'seed_0' / 'ppo.npz').unlink()
  (other / 'results.csv').unlink()
  result = run(other, '--mode=eval')
  assert result.returncode == 0, result.stderr[-3000:]
  expected = (whole[0] / 'results.csv').read_text()
  assert (other / 'results.csv').read_text() == expected


@pytest.mark.slow
def test_published_controllers_play_another_split(published, tmp_path):
  two, tmp_path = tmp_path / 'two', tmp_path / 'run'
  shutil.copytree(published, two)
  shutil.copytree(two / 'seed_0', two / 'seed_1')
  saved = json.loads((two / 'config.json').read_text())
  saved['config']['seeds'] = 2
  (two / 'config.json').write_text(json.dumps(saved))
  result = run(
    tmp_path,
    '--mode=eval',
    f'--controllers={two}',
    '--split=validation',
    '--problems=2',
    '--first=1',
  )
  assert result.returncode == 0, result.stderr[-3000:]
  folder = tmp_path / 'eval' / 'validation_best_2_first_1'
  header = json.loads((folder / 'results.json').read_text())['header']
  assert header['seeds'] == [0]
  assert not (tmp_path / 'transfer.md').exists()
  # The lists are those of their run.
  assert not (tmp_path / 'searched.json').exists()


def test_more_controllers_than_there_are_cannot_be_played(published, tmp_path):
  result = run(
    tmp_path / 'run', '--mode=eval', f'--controllers={published}', '--first=2'
  )
  assert result.returncode != 0 and 'Traceback' not in result.stderr
  assert '--first=2: there are 1 controllers' in result.stderr
  assert not (tmp_path / 'run').exists()


def test_a_policy_of_another_shape_is_refused(published, tmp_path):
  other = tmp_path / 'other'
  shutil.copytree(published, other)
  np.savez(other / 'seed_0' / 'ppo.npz', np.zeros(3), calls=1)
  result = run(tmp_path / 'run', '--mode=eval', f'--controllers={other}')
  assert result.returncode != 0 and 'Traceback' not in result.stderr
  assert 'ppo.npz holds arrays of the shapes [(3,)], expected' in result.stderr


def test_an_unknown_rival_cannot_be_left_out(published, tmp_path):
  result = run(
    tmp_path,
    '--mode=eval',
    f'--controllers={published}',
    "--config.eval.without=('random', 'reparation')",
  )
  assert result.returncode != 0 and 'Traceback' not in result.stderr
  assert 'eval.without names reparation: expected some of' in result.stderr


@pytest.mark.slow
def test_controllers_play_other_problems(published, tmp_path):
  other = tmp_path / 'other'
  shutil.copytree(published, other)
  for path in other.glob('seed_0/bandit*'):
    path.unlink()
  before = sorted(other.rglob('*'))
  tmp_path = tmp_path / 'run'
  result = run(
    tmp_path,
    '--mode=eval',
    f'--controllers={other}',
    '--config.data.test_limit=5',
    '--config.eval.budgets=(1, 10)',
    '--config.ppo.lr=0.5',
    "--config.eval.without=('lexical', 'best_fixed')",
  )
  assert result.returncode == 0, result.stderr[-3000:]
  table = (tmp_path / 'results.md').read_text()
  assert ' on minicode ' in table
  assert '| repair |' in table
  assert '| lexical |' not in table and '| best_fixed |' not in table
  # Nothing is trained, and nothing is written where the controllers lie.
  assert '| bandit' not in table
  assert sorted(other.rglob('*')) == before
  assert not (tmp_path / 'transfer.md').exists()
  content = json.loads((tmp_path / 'config.json').read_text())
  trained = json.loads((published / 'config.json').read_text())
  # What belongs to the controllers is that of their run.
  assert content['config']['ppo'] == trained['config']['ppo']
  assert content['config']['data']['test_limit'] == 5
  # But for the steps, of which a list may need more.
  assert trained['config']['editing']['max_steps'] < 10
  assert content['config']['editing']['max_steps'] == 10


@pytest.mark.slow
def test_what_nobody_plays_is_not_searched(published, tmp_path):
  left_out = (*open_loop.LISTS, 'best_of_b_tuned', 'greedy_first_tuned')
  result = run(
    tmp_path / 'run',
    '--mode=eval',
    f'--controllers={published}',
    '--config.data.test_limit=5',
    '--config.eval.budgets=(3,)',
    f'--config.eval.without={left_out}',
  )
  assert result.returncode == 0, result.stderr[-3000:]
  assert not (tmp_path / 'run' / 'searched.json').exists()
  table = (tmp_path / 'run' / 'results.md').read_text()
  assert '| ppo |' in table and '| best_open_loop |' not in table


@pytest.mark.slow
def test_lists_are_searched_where_only_temperatures_were_before(
  published, tmp_path
):
  other = tmp_path / 'other'
  shutil.copytree(published, other)
  path = other / 'searched.json'
  before = json.loads(path.read_text())
  nothing = {'best': {}, 'single': [], 'scores': {}, 'calls': 0}
  path.write_text(json.dumps(before | nothing))
  result = run(tmp_path / 'run', '--mode=eval', f'--controllers={other}')
  assert result.returncode == 0, result.stderr[-3000:]
  found = json.loads((tmp_path / 'run' / 'searched.json').read_text())
  for name in ('best', 'single', 'scores'):
    assert found[name] == before[name]
  assert found['temperatures'] == before['temperatures']


def test_controllers_are_not_trained(whole, tmp_path):
  result = run(tmp_path / 'run', f'--controllers={whole[0]}')
  assert result.returncode != 0 and 'takes --mode=eval' in result.stderr
  assert not (tmp_path / 'run').exists()


def test_another_config_in_the_same_workdir_is_refused(whole):
  workdir, _ = whole
  before = (workdir / 'config.json').read_text()
  result = run(workdir, '--config.ppo.lr=0.5')
  assert result.returncode != 0
  assert 'ppo.lr' in result.stderr and '0.5' in result.stderr
  assert (workdir / 'config.json').read_text() == before


@pytest.mark.parametrize(
  ('flags', 'message'),
  [
    (['--config.ppo.learning_rate=1'], 'learning_rate'),
    (['--config.data.name=apps'], 'apps'),
    (
      ['--config.data.name=mbpp', '--config.data.path=/nowhere.jsonl'],
      '/nowhere.jsonl',
    ),
    (['--config.data.protocol=all'], 'all'),
    (['--config.coder.backend=http'], 'template=chat'),
    (['--config.coder.model=/nowhere'], '/nowhere'),
    (['--config.mesh=tensor=64'], 'takes 64 devices, there are'),
  ],
)
def test_bad_input_is_one_clear_message(tmp_path, flags, message):
  workdir = tmp_path / 'run'
  result = run(workdir, *flags)
  assert result.returncode != 0
  assert message in result.stderr
  assert 'Traceback' not in result.stderr or 'learning_rate' in message
  assert not (workdir / 'results.json').exists()
