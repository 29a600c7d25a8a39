"""A comparison with what fails: a server, a strategy, a price or a split."""

import csv
import json

import pytest

from promptrl_jax.evaluation import events
from promptrl_jax.testing.fake_openai import FakeOpenAI
from promptrl_jax.testing.fake_server import Reply
from tests.experiments import commands
from tests.experiments.mbpp_http_test import right_if_even, write_data

PLAYED = 'direct', 'best_of_b', 'greedy_first', 'greedy_first_tuned', 'epic'
# What their rows say, and how many calls they make with B of them.
BAD = {
  'peeking': ("AttributeError: 'NoneType'", lambda budget: 0),
  'looping': ('StepTimeout: no request within', lambda budget: 1),
  'raising': ("KeyError: 'lost my notes'", lambda budget: 1),
  'overspending': ('BudgetExceeded: ', lambda budget: budget),
  'silent': ('submitted nothing', lambda budget: 1),
}
WITHOUT = (
  *('best_open_loop', 'single_list', 'hand_rule', 'random', 'best_of_b_tuned'),
  *('lexical', 'semantic', 'repair'),
)


class Dying:
  """A model that answers so many requests and then no more."""

  def __init__(self, answers):
    self.left = answers
    self.answered = []

  def __call__(self, body):
    if self.left < 1:
      return Reply(500)
    self.left -= 1
    self.answered.append(json.dumps(body, sort_keys=True))
    return right_if_even(body)


def run(folder, server, *flags):
  if not (folder / 'mbpp.jsonl').exists():
    write_data(folder / 'mbpp.jsonl')
  return commands.run(
    'experiments.compare',
    '--config=configs/compare.py:mbpp',
    f'--workdir={folder / "run"}',
    f'--config.data.path={folder / "mbpp.jsonl"}',
    '--config.ask.template=chat',
    '--config.subject=greedy_first',
    '--config.seeds=1',
    '--config.eval.budgets=(1,2)',
    '--config.eval.resamples=100',
    '--config.search.seeds=1',
    '--config.search.temperatures=(0.8,)',
    "--config.plugins=('tests.experiments.misbehaving',)",
    f'--config.eval.strategies={(*BAD, "epic")}',
    f'--config.eval.without={WITHOUT}',
    *commands.http_roles(server.url, retries=0, timeout_s=10.0),
    *flags,
  )


@pytest.fixture(scope='module')
def broken_and_mended(tmp_path_factory):
  """A run whose server dies twice: in the search, and while it is played."""
  folder = tmp_path_factory.mktemp('faults')
  model = Dying(2)
  with FakeOpenAI(model) as server:
    in_search = run(folder, server)
    model.left = 5
    in_play = run(folder, server)
    model.left = 1000
    mended = run(folder, server)
  return folder / 'run', model, in_search, in_play, mended


def test_a_server_that_dies_pauses_the_run_in_one_line(broken_and_mended):
  workdir, _, in_search, in_play, _ = broken_and_mended
  for result in (in_search, in_play):
    assert result.returncode == 1
    assert 'Traceback' not in result.stderr
    last = result.stderr.splitlines()[-1]
    assert last.startswith('error: paused: ') and '500' in last
    assert 'the same command goes on, and asks nothing twice' in last
  kinds = [event['event'] for event in events.read(workdir / 'events.jsonl')]
  assert 'with B=' in in_play.stderr.splitlines()[-1]
  assert kinds.count('paused') == 1 and kinds[-1] == 'done'


def test_a_run_that_goes_on_pays_for_nothing_twice(broken_and_mended):
  workdir, model, _, _, mended = broken_and_mended
  assert mended.returncode == 0, mended.stderr[-3000:]
  assert len(model.answered) == len(set(model.answered)) > 7
  results = json.loads((workdir / 'results.json').read_text())
  table = results['tables']['visible1']['cells']
  cells = {(cell['strategy'], cell['budget']) for cell in table}
  assert cells == {(n, b) for n in (*PLAYED, *BAD) for b in (1, 2)}
  # What evolves says how different its texts are.
  islands = {(row['strategy'], row['budget']) for row in results['islands']}
  assert islands == {('epic', 1), ('epic', 2)}
  assert '### Diversity by island' in (workdir / 'results.md').read_text()


def test_strategies_that_break_the_rules_fail_alone(broken_and_mended):
  workdir, *_ = broken_and_mended
  with open(workdir / 'results.csv', encoding='utf-8') as file:
    rows = list(csv.DictReader(file))
  others = [row for row in rows if row['strategy'] not in BAD]
  printed = (workdir / 'results.md').read_text()
  assert '### Attempts that failed' in printed
  for name, (error, calls) in BAD.items():
    mine = [row for row in rows if row['strategy'] == name]
    assert len(mine) == 2 * 3
    for row in mine:
      assert row['error'].startswith(error), row
      made = calls(int(row['budget']))
      assert (row['pass'], row['calls']) == ('0', str(made)), row
    assert f'| {name} | ' in printed
  assert not any(row['error'] for row in others)
  assert {row['pass'] for row in others} == {'0', '1'}


@pytest.mark.parametrize(
  ('flags', 'message'),
  [
    (('--config.spend.dollars=1.0',), "needs the price of 'stub'"),
    (
      ('--config.spend.calls=3',),
      'best_of_b 1 (needs 3 calls)',
    ),
    (
      ('--config.data.name=train_alone',),
      'the data has no task in validation, test: ',
    ),
  ],
)
def test_a_run_that_cannot_pay_or_choose_is_one_line_and_writes_nothing(
  flags, message, tmp_path
):
  with FakeOpenAI(right_if_even) as server:
    result = run(tmp_path, server, *flags)
  assert result.returncode == 1
  assert message in result.stderr.splitlines()[-1]
  assert 'Traceback' not in result.stderr
  assert not server.bodies and not (tmp_path / 'run').exists()


@pytest.mark.slow
def test_a_report_says_how_many_of_the_tests_that_a_model_wrote_are_right(
  tmp_path,
):
  def answer(body):
    if 'Write 5 assertions' in body['messages'][-1]['content']:
      return 'assert add(0) == 0\nassert add(3) == 4\nassert add(4) == 5'
    return right_if_even(body)

  with FakeOpenAI(answer) as server:
    result = run(
      tmp_path,
      server,
      "--config.eval.strategies=('codet',)",
      '--config.eval.budgets=(4,)',
      f'--config.eval.without={(*WITHOUT, "best_of_b", "greedy_first_tuned")}',
    )
  assert result.returncode == 0, result.stderr[-3000:]
  results = json.loads((tmp_path / 'run' / 'results.json').read_text())
  # The tasks add 0, 1 and 2: one of the three is right for the first, two for
  # the second, none for the third.
  *_, codet = results['tests']
  assert codet == {
    **{'strategy': 'codet', 'protocol': 'visible1', 'budget': 4},
    **{'tasks': 3, 'tasks_without_tests': 0, 'tasks_all_passed': 0},
    **{'tests': 9, 'tests_passed': 3},
  }
  verdicts = {row['strategy']: row['verdicts'] for row in results['programs']}
  assert verdicts['direct'] == {'no failure': 2, 'wrong value': 1}
  printed = (tmp_path / 'run' / 'results.md').read_text()
  assert '| codet | 4 | 3 | 0 | 9 | 33.3 | 0 |' in printed
  assert '| direct | 4 | 3 | 66.7 | wrong value 33.3 |' in printed
