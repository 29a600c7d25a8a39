"""The comparison as a user runs it: whole, stopped and resumed, bad input."""

import json
import shutil

import pytest

from configs.compare import Config
from experiments import entrants
from promptrl_jax import settings
from promptrl_jax.evaluation import equal_calls, events
from promptrl_jax.evaluation.cells import read_csv
from promptrl_jax.tasks.minicode2.suite import SUITE
from promptrl_jax.training import workdir as workdir_lib
from tests.experiments import commands

SMALL = (
  '--config=configs/compare.py:smoke',
  '--config.controllers=',
  '--config.subject=best_open_loop',
  '--config.eval.strategies=()',
  '--config.oracle_of_n=True',
  '--config.trained_rewriter=minicode2_rewriter',
  '--config.portfolio=("best_open_loop","greedy_first")',
  '--config.restarted=("best_open_loop",)',
  '--config.restarted_after=2',
  '--config.verified=("greedy_first",)',
  '--config.verifier_problems=12',
  '--config.coder.certainty=True',
  '--config.data.validation_limit=3',
  '--config.data.test_limit=4',
  '--config.eval.budgets=(1,3)',
  '--config.eval.without=("semantic","single_list","hand_rule","lexical",'
  '"best_of_b_tuned","greedy_first_tuned")',
)


def run(workdir, *flags):
  return commands.run(
    'experiments.compare', f'--workdir={workdir}', *SMALL, *flags
  )


@pytest.fixture(scope='module')
def whole(tmp_path_factory):
  """A comparison that nothing interrupted."""
  workdir = tmp_path_factory.mktemp('whole')
  result = run(workdir, '--gate=direct:0')
  assert result.returncode == 0, result.stderr[-3000:]
  return workdir, result


def test_it_leaves_tables_traces_and_curves(whole):
  workdir, result = whole
  for name in (
    *('results.md', 'results.csv', 'trace.jsonl', 'solved_at_b.png'),
    *('reliability.png', 'verifiers.json', 'scores.csv'),
    *('soft_scores.png', 'cost_quality.png'),
  ):
    assert (workdir / name).stat().st_size
  assert '| best_open_loop |' in result.stdout
  seen = events.read(workdir / 'events.jsonl')
  kinds = [event['event'] for event in seen]
  played = [e for e in seen if e['event'] == 'cell']
  assert kinds == ['start', *['cell'] * len(played), 'done']
  assert seen[0]['cells'] == seen[-1]['cells'] == len(played) == 2 * 11
  assert all(e['seconds'] > 0 and e['dollars'] == 0 for e in played)
  (table,) = json.loads((workdir / 'results.json').read_text())[
    'tables'
  ].values()
  assert all(cell['seconds'] > 0 for cell in table['cells'])
  text = (workdir / 'results.md').read_text()
  assert '### Pareto front' in text
  assert '### pass@k of 2 independent samples' in text
  assert '### Samples of one prompt at the calls that best_open_loop' in text
  curves = {path.name for path in (workdir / 'curves/visible1').iterdir()}
  assert curves == {event['strategy'] for event in played}
  replies = json.loads((workdir / 'results.json').read_text())['replies']
  assert {row['strategy'] for row in replies} == curves
  assert 'program' in {row['kind'] for row in replies}
  job, saved = workdir_lib.load_config(workdir)
  assert job == 'compare'
  config = settings.from_mapping(Config, saved)
  known = tuple(entrants.compared_costs(config, None))
  assert known == tuple(e['strategy'] for e in played[: len(known)])
  assert 'candidates that 3 calls per problem buy: direct 1,' in result.stdout
  for name in known:
    assert f', {name} ' in result.stdout or name == 'direct'


@pytest.mark.slow
def test_a_stopped_one_goes_on_to_the_same_results(whole, tmp_path):
  workdir = tmp_path / 'stopped'
  workdir.mkdir()
  (workdir / 'stop').touch()
  first = run(workdir)
  assert first.returncode == 0
  assert 'the same command goes on' in first.stdout  # in a search
  assert not [*workdir.glob('results.*'), *workdir.glob('cells/*')]
  second = run(workdir)
  assert second.returncode == 0, second.stderr[-3000:]
  for name in ('results.csv', 'trace.jsonl', 'searched.json'):
    assert (workdir / name).read_bytes() == (whole[0] / name).read_bytes()


@pytest.mark.slow
def test_what_was_stopped_early_is_reported(whole, tmp_path):
  workdir = tmp_path / 'part'
  shutil.copytree(whole[0], workdir)
  # One of a smaller budget is left, which a gate does not take for the last.
  (workdir / 'cells/visible1/best_open_loop_3.csv').unlink()
  (workdir / 'stop').touch()
  result = run(workdir, '--gate=best_open_loop:50')
  assert 'the same command goes on' in result.stdout
  assert result.returncode == 1
  assert 'gate: best_open_loop has not played at B=3 yet' in result.stderr
  table = json.loads((workdir / 'results.json').read_text())['tables']
  cells = table['visible1']['cells']
  played = {(cell['strategy'], cell['budget']) for cell in cells}
  assert {('direct', 3), ('best_open_loop', 1)} <= played
  assert ('random_portfolio', 3) in played  # behind the one that is left
  assert ('best_open_loop', 3) not in played


@pytest.mark.slow
def test_validation_is_played_where_strategies_are_chosen(tmp_path):
  result = run(tmp_path, '--config.split=validation')
  assert result.returncode == 0, result.stderr[-3000:]
  played = {
    cell.strategy: cell.task_ids for cell in read_csv(tmp_path / 'results.csv')
  }
  wanted = tuple(task.task_id for task in SUITE.load('validation')[:3])
  assert set(played.values()) == {wanted}
  assert {'direct', 'best_open_loop', 'best_open_loop_restarted'} <= set(played)
  text = (tmp_path / 'results.md').read_text()
  assert '- split: validation' in text
  # They are those that the lists were chosen on.
  assert 'Selection score' not in text


def test_a_gate_fails_where_nothing_was_played(whole, tmp_path):
  workdir = tmp_path / 'none'
  shutil.copytree(whole[0], workdir)
  for path in (workdir / 'cells').rglob('*.csv'):
    path.unlink()
  (workdir / 'stop').touch()
  result = run(workdir, '--gate=direct:0')
  assert result.returncode == 1
  assert 'gate: direct has not played at B=3 yet' in result.stderr


@pytest.mark.slow
def test_cells_that_are_there_are_not_played_again(whole):
  workdir, _ = whole
  before = (workdir / 'results.csv').read_bytes()
  lost = 'direct', 'random'
  for name in lost:
    (workdir / f'cells/visible1/{name}_3.csv').unlink()
  # What plays together decides nothing, so that a run may go on with another.
  result = run(workdir, '--gate=direct:99.9', '--config.together=20')
  assert result.returncode == 1
  assert 'gate: direct at B=3 solves' in result.stderr
  seen = events.read(workdir / 'events.jsonl')
  ended = [event['event'] for event in seen].index('done')
  again = [event for event in seen[ended:] if event['event'] == 'cell']
  names = [(event['strategy'], event['budget']) for event in again]
  assert names == [(name, 3) for name in lost]
  assert [event['seconds'] for event in again] == [None, None]
  assert (workdir / 'results.csv').read_bytes() == before


SAMPLING = ('best_of_b', 'best_of_b_tuned', 'greedy_first_tuned', 'repair')
EDITS = ('semantic', 'lexical', 'hand_rule', 'random', 'single_list')


@pytest.mark.slow
@pytest.mark.parametrize(
  ('without', 'played', 'not_paid'),
  [
    (
      ('direct', 'mbr_exec', 'ppo', 'bandit', 'rewriter', 'portfolio'),
      (
        *('greedy_first', 'best_open_loop', 'bandit_mc'),
        *('ppo_rewriter', 'random_portfolio'),
      ),
      ('rewriter', 'portfolio.json'),
    ),
    (
      ('best_open_loop', 'bandit_mc', 'ppo_rewriter', 'random_portfolio'),
      (
        *('direct', 'greedy_first', 'mbr_exec', 'ppo', 'bandit'),
        *('rewriter', 'portfolio'),
      ),
      ('searched.json',),
    ),
  ],
)
def test_strategies_of_any_kind_are_left_out(
  without, played, not_paid, tmp_path
):
  # A flag of a tuple that is given twice is put together.
  others = ('--config.portfolio', '--config.restarted', '--config.verifie')
  others += ('--config.coder',)
  small = [flag for flag in SMALL if not flag.startswith(others)]
  result = commands.run(
    'experiments.compare',
    f'--workdir={tmp_path}',
    *small,
    '--config.controllers=docs/results/minicode2',
    "--config.eval.strategies=('mbr_exec',)",
    "--config.portfolio=('greedy_first',)",
    '--config.subject=greedy_first',
    '--config.eval.thompson=False',
    '--config.eval.shuffled=False',
    '--config.oracle_of_n=False',
    '--config.rescore=False',
    f'--config.eval.without={(*without, *SAMPLING, *EDITS)}',
  )
  assert result.returncode == 0, result.stderr[-3000:]
  cells = {path.name for path in (tmp_path / 'cells/visible1').glob('*.csv')}
  # As `greedy_first` is played, the subject has its control of equal calls.
  names = *played, equal_calls.label('greedy_first')
  assert cells == {f'{name}_{b}.csv' for name in names for b in (1, 3)}
  assert not any((tmp_path / name).exists() for name in not_paid)
  chosen = json.loads((tmp_path / 'results.json').read_text())['selection']
  assert chosen and all(row['again'] is None for row in chosen)


@pytest.mark.parametrize(
  ('flag', 'message'),
  [
    ('--config.eval.budgets=(0,)', 'at least one model call'),
    ('--config.eval.budgets=(3,)', 'budgets=(1, 3, 3): expected each'),
    ("--config.eval.strategies=('nobody',)", "'nobody'"),
    ('--gate=ppo', 'expected STRATEGY:MARK'),
    ('--config.data.test_limit=-1', 'test_limit'),
    ('--config.controllers=nowhere', 'nowhere'),
    ("--config.eval.without=('rewritten',)", 'names rewritten: expected some'),
    ("--config.eval.without=('best_open_loop',)", 'best_open_loop is what the'),
    ("--config.verified=('ppo',)", 'ppo is not played: expected some of'),
    ('--config.verified_at=0.0', 'verified_at=0.0: expected a probability'),
    ("--config.restarted=('ppo',)", 'ppo is not played: expected some of'),
    ('--config.restarted_after=0', 'restarted_after=0: expected at least one'),
    ('--config.split=train', "split='train': expected validation or test"),
    ("--config.portfolio=('ppo',)", 'ppo is not played, or'),
    ("--config.portfolio=('portfolio',)", 'portfolio is not played, or'),
    ("--config.portfolio=('best_of_b_tuned',)", 'asked in a way of its own'),
    ('--config.subject=ppo', "'ppo' is not played: expected one of direct"),
    ('--gate=nobody:5', "'nobody' is not played: expected one of direct"),
  ],
)
def test_bad_input_is_one_line_and_writes_nothing(flag, message, tmp_path):
  result = run(tmp_path / 'W', flag)
  assert result.returncode == 1
  assert message in result.stderr.splitlines()[-1]
  assert not (tmp_path / 'W').exists()
