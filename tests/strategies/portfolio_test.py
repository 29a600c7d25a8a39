"""A portfolio divides the calls of a problem among other strategies."""

import dataclasses

import pytest

from promptrl_jax.envs.editing.config import EditingConfig
from promptrl_jax.evaluation import portfolio as portfolio_lib
from promptrl_jax.evaluation import restarting
from promptrl_jax.evaluation.play import Entrant, LineUp, Plan
from promptrl_jax.llm.ask import AskConfig, coder_prompt
from promptrl_jax.llm.attempt import Execute
from promptrl_jax.llm.cache import CachedBackend
from promptrl_jax.strategies import portfolio
from promptrl_jax.strategies.base import OverOperators, TextStrategy
from promptrl_jax.strategies.policies import open_loop
from promptrl_jax.strategies.portfolio import Portfolio, Slice
from promptrl_jax.testing import tiny
from promptrl_jax.testing.scripted import ScriptedBackend

EDITING = EditingConfig(actions=('keep', 'resample'), budget=8)


def tries(answer):
  """Asks until its calls are spent; submits `answer` of all it was told."""

  def play(attempt, tools):
    code = ''
    while attempt.budget_left:
      reply = yield from tools.write_program(attempt, coder_prompt(attempt))
      assert reply
      code = f'def add(x):\n  return x + {answer(attempt)}\n'
      if (yield Execute(code)).passed:
        break
    return code

  return TextStrategy(play)


def number(attempt):
  return int(attempt.problem.statement.split('add ')[1].split()[0])


EVEN = tries(lambda a: number(a) if number(a) % 2 == 0 else -1)
LARGE = tries(lambda a: number(a) if number(a) >= 3 else -1)
TASKS = tiny.tasks(6, 'test')


@pytest.fixture
def line_up(pool):
  model = ScriptedBackend(lambda request: 'def add(x):\n  return x - 99\n')
  return LineUp(
    {role: CachedBackend(model) for role in ('rewriter', 'coder')},
    pool,
    AskConfig(),
  )


def run(line_up, strategy, budget):
  return line_up.run(
    Entrant.of(strategy), TASKS, protocol='visible1', budget=budget, seed=0
  )


def test_schedules_are_all_orders_of_members_and_powers_of_two():
  found = portfolio.schedules(('a', 'b'), 4)
  assert found[:2] == ((Slice('a', 4),), (Slice('b', 4),))
  pairs = [tuple((s.member, s.calls) for s in one) for one in found[2:]]
  assert pairs == [
    (('a', 1), ('b', 3)),
    (('a', 2), ('b', 2)),
    (('b', 1), ('a', 3)),
    (('b', 2), ('a', 2)),
  ]
  assert all(
    sum(one.calls for one in schedule) == 16
    for schedule in portfolio.schedules(('a', 'b', 'c', 'd'), 16)
  )


def test_the_next_member_goes_on_where_one_failed(line_up):
  members = {'even': EVEN, 'large': LARGE}
  schedule = (Slice('even', 2), Slice('large', 3))
  played = run(line_up, Portfolio(members, portfolio.fixed({5: schedule})), 5)
  numbers = [number_of(task) for task in TASKS]
  expected = [n % 2 == 0 or n >= 3 for n in numbers]
  assert played.passed.tolist() == expected
  # One call where the first is right, its slice and one where the second is.
  calls = [1 if n % 2 == 0 else 3 if n >= 3 else 5 for n in numbers]
  assert played.calls.tolist() == played.attempts.tolist() == calls
  rows = [row for row in played.trace if row['row'] == numbers.index(3)]
  assert [row['member'] for row in rows] == ['even', 'even', 'large']
  assert [row['step'] for row in rows] == [0, 1, 2]
  assert {(row['seed'], row['budget']) for row in rows} == {(0, 5)}
  sent = [ask for row in rows for ask in row['sent']]
  # What was asked greedily is sampled from then on, with new draws.
  assert [ask['temperature'] for ask in sent] == [0.0, 0.8, 0.8]
  assert len({ask['seed'] for ask in sent}) == 3


def number_of(task):
  return int(task.statement.split('add ')[1].split()[0])


def test_a_strategy_that_restarts_forgets_what_it_was_told(line_up):
  """Only what was asked greedily is remembered, so that draws are new."""
  schedule = portfolio.restarts('list', 2)(TASKS[0], 5, 0)
  assert [one.calls for one in schedule] == [2, 2, 1]
  listed = OverOperators(
    open_loop(('keep', 'resample'), EDITING.actions), EDITING
  )
  again = restarting.entrant('list', Entrant.of(listed), 2)
  cell, trace = line_up.play_cell(
    'again', again, Plan('visible1', 5, TASKS, (0,))
  )
  assert (cell.calls == 5).all()
  rows = [row for row in trace if row['row'] == 0]
  assert [row['action'] for row in rows] == [
    *('keep', 'resample', 'keep', 'resample', 'keep')
  ]
  assert [row['step'] for row in rows] == [0, 1, 2, 3, 4]
  sent = [ask for row in rows for ask in row['sent']]
  assert [ask['temperature'] for ask in sent] == [0.0] + 4 * [0.8]
  assert len({ask['seed'] for ask in sent}) == 5
  # Before its first restart it is the strategy itself.
  for budget in (1, 2):
    plan = Plan('visible1', budget, TASKS, (0, 1))
    asked = [
      [row['sent'] for row in line_up.play_cell('one', one, plan)[1]]
      for one in (again, Entrant.of(listed))
    ]
    assert asked[0] == asked[1]


def test_a_policy_over_operators_is_in_step_wherever_its_slice_begins(line_up):
  """A list is read by step: rows that join late must not skip operators."""
  listed = OverOperators(
    open_loop(('keep', 'resample'), EDITING.actions), EDITING
  )
  schedule = (Slice('even', 2), Slice('list', 2))
  played = run(
    line_up,
    Portfolio({'even': EVEN, 'list': listed}, portfolio.fixed({4: schedule})),
    4,
  )
  for row, task in enumerate(TASKS):
    actions = [r['action'] for r in played.trace if r['row'] == row]
    if number_of(task) % 2 == 0:
      assert actions == ['execute']
    else:
      assert actions == ['execute', 'execute', 'keep', 'resample']


def test_a_member_is_refused_calls_beyond_its_slice(line_up):
  def greedy(attempt, tools):
    while True:
      yield from tools.write_program(attempt, coder_prompt(attempt))

  members = {'greedy': TextStrategy(greedy), 'large': LARGE}
  schedule = (Slice('greedy', 2), Slice('large', 2))
  strategy = Portfolio(members, portfolio.fixed({4: schedule}))
  cell, _ = line_up.play_cell(
    'portfolio', Entrant.of(strategy), Plan('visible1', 4, TASKS, (0,))
  )
  assert not cell.passed.any() and (cell.calls == 2).all()
  assert 'beyond the slice of 2' in cell.details[0][0].error


def test_a_program_that_its_member_never_ran_is_submitted(line_up):
  def right(attempt, tools):
    yield from tools.write_program(attempt, coder_prompt(attempt))
    return f'def add(x):\n  return x + {number(attempt)}\n'

  strategy = Portfolio(
    {'right': TextStrategy(right)}, portfolio.fixed({1: (Slice('right', 1),)})
  )
  assert run(line_up, strategy, 1).passed.all()


def test_the_best_schedule_is_found_and_single_members_count(line_up):
  entrants = {'even': Entrant.of(EVEN), 'large': Entrant.of(LARGE)}
  members = portfolio_lib.members(tuple(entrants), entrants, 0)
  chosen = portfolio_lib.choose(
    line_up,
    members,
    TASKS,
    protocol='visible1',
    budgets=(1, 2),
    seeds=(0,),
  )
  assert chosen.best[1] in ((Slice('even', 1),), (Slice('large', 1),))
  assert {one.member for one in chosen.best[2]} == {'even', 'large'}
  numbers = [number_of(task) for task in TASKS]
  solved = [n % 2 == 0 or n >= 3 for n in numbers]
  assert chosen.scores[2] == sum(solved) / len(solved)
  assert (
    portfolio_lib.Chosen.from_json(
      {
        'members': list(chosen.members),
        'best': {
          str(b): [vars(one) for one in s] for b, s in chosen.best.items()
        },
        'scores': {str(b): v for b, v in chosen.scores.items()},
        'calls': chosen.calls,
      }
    )
    == chosen
  )
  plan = Plan('visible1', 2, TASKS, (0, 1))
  best, _ = line_up.play_cell('portfolio', chosen.entrant(members), plan)
  assert best.optimisation_calls == chosen.calls > 0
  drawn = portfolio_lib.control(members)
  control, _ = line_up.play_cell('random', drawn, plan)
  assert best.passed.mean() == chosen.scores[2] >= control.passed.mean()


def test_who_cannot_be_a_member_is_refused(line_up):
  del line_up
  models = [{'rewriter': CachedBackend(ScriptedBackend(str))} for _ in range(2)]
  known = {
    'tuned': Entrant.of(EVEN, ask=AskConfig()),
    'even': Entrant.of(EVEN, models=lambda seed: models[0]),
    'large': Entrant.of(LARGE, models=lambda seed: models[1]),
    'plain': Entrant.of(LARGE),
  }
  for names, reason in {
    ('tuned',): "'tuned' has a temperature or an instruction",
    ('nobody',): 'nobody is not played, expected some of tuned',
    ('even', 'large'): "'large' has a rewriter of its own",
  }.items():
    with pytest.raises(ValueError, match=reason):
      portfolio_lib.members(names, known, 0)
  shared = portfolio_lib.members(('plain', 'even'), known, 0)
  assert [shared[name].models(0) for name in shared] == [models[0]] * 2


def test_calls_that_members_share_are_paid_once():
  model = {'rewriter': CachedBackend(ScriptedBackend(str))}
  one, other = (
    Entrant.of(
      EVEN,
      models=lambda seed: model,
      optimisation_calls=calls,
      training_calls=5.0,
    )
    for calls in (2.0, 3.0)
  )
  known = {'one': one, 'plain': Entrant.of(LARGE), 'other': other}
  control = portfolio_lib.control(portfolio_lib.members(tuple(known), known, 0))
  assert control.calls_paid_once == 10
  known['one'] = dataclasses.replace(one, training_calls=None)
  known['other'] = dataclasses.replace(other, training_calls=None)
  members = portfolio_lib.members(tuple(known), known, 0)
  assert portfolio_lib.control(members).calls_paid_once is None
