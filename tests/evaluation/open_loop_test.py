"""Lists of operators: what is played, what a search finds, what it costs."""

import dataclasses
import json
import re

import pytest

from promptrl_jax.envs.editing.config import EditingConfig
from promptrl_jax.evaluation import mending, open_loop, open_loop_search
from promptrl_jax.evaluation.open_loop import Found
from promptrl_jax.evaluation.open_loop_search import SearchConfig, Validation
from promptrl_jax.evaluation.play import Entrant, LineUp
from promptrl_jax.execution.memo import MemoPool
from promptrl_jax.llm.ask import AskConfig
from promptrl_jax.llm.attempt import CODER, REWRITER
from promptrl_jax.llm.cache import CachedBackend
from promptrl_jax.prompts.examples import ExampleLibrary, from_tasks
from promptrl_jax.testing import tiny
from promptrl_jax.testing.scripted import ScriptedBackend

EDITING = EditingConfig(
  actions=('keep', 'resample', 'semantic', 'repair', 'reset_prompt')
)
BUDGETS = (1, 2, 4)
SEARCH = SearchConfig(beam=2, seeds=1, temperatures=(0.5, 0.8))
# Even numbers are added by a repair alone, odd ones where it was rewritten.
TASKS = tuple(
  dataclasses.replace(task, register=('even', 'odd')[k % 2])
  for k, task in enumerate(tiny.tasks(4, 'validation'))
)


def write_program(request):
  prompt = request.messages[-1].content
  number = int(re.search(r'add (\d+)', prompt).group(1))
  repaired, rewritten = '# wrong:' in prompt, 'Rewritten' in prompt
  is_solved = rewritten if number % 2 else repaired
  return f'\n  return x + {number if is_solved else number + 50}'


def rewrite(request):
  number = re.search(r'add (\d+)', request.messages[-1].content).group(1)
  return f' Rewritten: write a function to add {number}.'


@pytest.fixture
def line_up(pool):
  return LineUp(
    {
      REWRITER: CachedBackend(ScriptedBackend(rewrite)),
      CODER: CachedBackend(ScriptedBackend(write_program)),
    },
    MemoPool(pool),
  )


def play(line_up, operators, budget):
  strategy = open_loop.strategy(operators, EDITING)
  entrant = Entrant(lambda seed: strategy)
  return line_up.run(entrant, TASKS, protocol='visible1', budget=budget, seed=0)


@pytest.fixture
def found(line_up):
  return search(line_up)


def search(line_up, **changes):
  config = dataclasses.replace(SEARCH, **changes)
  validation = Validation(line_up, TASKS, EDITING, config, 'visible1')
  found = open_loop_search.search(validation, BUDGETS)
  return open_loop_search.tune(found, validation, BUDGETS, AskConfig())


def test_a_list_is_played_in_order_and_resamples_behind_its_end(line_up):
  run = play(line_up, ('keep', 'repair', 'semantic'), 6)
  by_task = [detail.actions for detail in run.details]
  assert by_task[0] == 'keep repair'
  assert by_task[1] == 'keep repair semantic'
  assert run.passed.all()
  run = play(line_up, ('keep',), 3)
  assert [d.actions for d in run.details] == ['keep resample resample'] * 4


def test_what_is_not_available_is_resampled(line_up):
  run = play(line_up, ('reset_prompt', 'repair'), 2)
  assert run.details[1].actions == 'resample repair'


def test_the_search_finds_lists_that_solve_all_that_can_be_solved(
  found, line_up
):
  assert found.scores == {1: 0.0, 2: 0.5, 4: 1.0}
  assert play(line_up, found.best[2], 2).passed.mean() == 0.5
  assert play(line_up, found.best[4], 4).passed.all()
  assert play(line_up, found.single, 4).passed.all()


def test_its_price_is_what_an_empty_cache_would_pay(found, line_up):
  assert found.calls > len(TASKS)
  misses = [backend.misses for backend in line_up.backends.values()]
  # The two rivals that sample share requests, and each pays for its own.
  assert found.calls < sum(misses)
  assert all(calls > len(TASKS) for calls in found.temperature_calls.values())
  assert found.calls + sum(found.temperature_calls.values()) > sum(misses)
  assert search(line_up) == found
  assert misses == [backend.misses for backend in line_up.backends.values()]


def test_the_number_of_examples_is_chosen_where_there_are_some(pool):
  def needs_two(request):
    text = ' '.join(message.content for message in request.messages)
    numbers = re.findall(r'add (\d+)', text)
    right = len(set(numbers)) == 3
    return f'\n  return x + {numbers[-1] if right else 50}'

  coder = CachedBackend(ScriptedBackend(needs_two))
  library = ExampleLibrary(from_tasks(tiny.tasks(8)))
  line_up = LineUp(
    {REWRITER: coder, CODER: coder},
    MemoPool(pool),
    options={'examples': library},
  )
  found = search(line_up)
  assert found.examples == {'fewshot': 2}
  tuned = found.entrants(EDITING, AskConfig())['fewshot_tuned']
  run = line_up.run(tuned, TASKS, protocol='visible1', budget=1, seed=0)
  assert run.passed.all()
  assert found.temperature_calls['fewshot'] >= 3 * len(TASKS)
  assert found.facts()['examples of fewshot_tuned'] == '2'


def test_entrants_play_what_was_found(found, line_up):
  entrants = found.entrants(EDITING, AskConfig())
  assert set(entrants) == {
    *('best_open_loop', 'single_list', 'hand_rule'),
    *('best_of_b_tuned', 'greedy_first_tuned'),
  }
  best = entrants['best_open_loop']
  assert best.optimisation_calls == found.calls
  run = line_up.run(best, TASKS, protocol='visible1', budget=4, seed=0)
  assert run.passed.all()
  tuned = entrants['best_of_b_tuned']
  assert tuned.ask.sample_temperature == found.temperatures['best_of_b']


def test_a_budget_between_two_plays_the_list_of_the_lower_one(found, line_up):
  best = found.entrants(EDITING, AskConfig())['best_open_loop']
  run = line_up.run(best, TASKS, protocol='visible1', budget=3, seed=0)
  first = [detail.actions.split()[:1] for detail in run.details]
  assert first == [list(found.best[2][:1])] * 4


def test_what_was_found_goes_through_json_and_back(found):
  again = Found.from_json(json.loads(json.dumps(dataclasses.asdict(found))))
  assert again.facts() == found.facts()
  assert set(again.best) == {1, 2, 4}


def test_every_setting_of_the_search_changes_it(found, line_up):
  changes = {'beam': 1, 'seeds': 2, 'problems': 3, 'temperatures': (0.6,)}
  assert changes.keys() == {f.name for f in dataclasses.fields(SearchConfig)}
  for name, value in changes.items():
    assert search(line_up, **{name: value}) != found, name


@pytest.mark.parametrize('field', ['beam', 'seeds'])
def test_a_search_of_nothing_is_refused(field):
  with pytest.raises(ValueError, match=f'{field}=0: expected at least 1'):
    SearchConfig(**{field: 0})


def test_the_table_tells_which_operator_solves_which_kind(line_up):
  figures = mending.measure(
    line_up, TASKS, EDITING, protocol='visible1', seeds=(0, 1)
  )
  assert figures['direct'] == 0.0 and figures['agreement'] is None
  solved = {kind: row['solved'] for kind, row in figures['kinds'].items()}
  assert solved['even'] == {
    'keep': 0.0,
    'resample': 0.0,
    'semantic': 0.0,
    'repair': 1.0,
  }
  assert solved['odd']['semantic'] == 1.0 and solved['odd']['repair'] == 0.0
  assert solved['all']['repair'] == 0.5
  assert figures['choosing'] is None  # of four failures
  text = mending.to_markdown('validation', figures)
  assert '| odd | 2 | 0.0 | 2 | 0.0 | 0.0 | 100.0 | 0.0 |' in text


def test_the_table_tells_what_choosing_by_the_failure_is_worth(line_up):
  figures = mending.measure(
    line_up,
    tiny.tasks(12, 'validation'),
    EDITING,
    protocol='visible1',
    seeds=(0, 1),
  )
  worth = figures['choosing']
  # A repair solves half of them; a rewrite makes two calls, and is left out.
  assert [row['solved'] for row in worth.values()] == [0.5] * 4
  text = mending.to_markdown('validation', figures)
  assert '| problem | 50.0 | +0.0 [+0.0, +0.0] |' in text


def test_knowing_the_kind_is_worth_what_one_list_cannot_do(line_up):
  where = {'protocol': 'visible1', 'budgets': (1, 2)}
  config = SearchConfig(beam=2, seeds=1)
  each = Validation(line_up, TASKS, EDITING, config, 'visible1')
  one = dataclasses.replace(each, tasks=mending.as_one_kind(TASKS))
  lists = {
    'one': mending.lists_by_kind(one, (1, 2)),
    'each': mending.lists_by_kind(each, (1, 2)),
  }
  assert set(lists['each']) == {'even', 'odd'}
  worth = mending.worth_of_kinds(
    line_up, TASKS, lists, EDITING, seeds=(0,), **where
  )
  assert [worth['one'][b]['passed'] for b in (1, 2)] == [0.0, 0.5]
  assert [worth['each'][b]['passed'] for b in (1, 2)] == [0.0, 1.0]
  assert '| each | 0.0 (1.00) | 100.0 (2.00) |' in mending.worth_to_markdown(
    worth
  )
