"""Problems as a strategy played them."""

import pytest

from promptrl_jax.evaluation import episodes
from promptrl_jax.execution import TestResult


def step(
  task,
  number,
  action,
  passed,
  strategy='ppo',
  seed=0,
  budget=8,
  protocol='visible1',
):
  return {
    'strategy': strategy,
    'protocol': protocol,
    'budget': budget,
    'seed': seed,
    'task_id': task,
    'step': number,
    'action': action,
    'sent': [{'role': 'coder', 'messages': [{'content': f'write {task}'}]}],
    'visible_passed': passed,
    'code': f'def {task}(): {number}',
    'status': 'passed' if passed else 'failed',
    'error_type': '',
  }


TRACE = [
  step('a', 0, 'keep', False, 'random'),
  step('a', 0, 'keep', True),
  step('b', 0, 'keep', False),
  step('b', 1, 'add_demo', True),
  step('b', 0, 'keep', True, seed=1),
  step('b', 0, 'keep', True, budget=4),
  step('b', 0, 'semantic', True, protocol='oracle'),
]


def test_episodes_are_those_of_the_first_run():
  found = episodes.read(TRACE, 'ppo', 8)
  actions = {task: [r['action'] for r in rows] for task, rows in found.items()}
  assert actions == {'a': ['keep'], 'b': ['keep', 'add_demo']}
  with pytest.raises(
    ValueError, match=r"by fewshot at a budget of 8.*'random'"
  ):
    episodes.read(TRACE, 'fewshot', 8)


def test_an_episode_shows_prompts_programs_and_verdicts():
  rows = episodes.read(TRACE, 'ppo', 8)['b']
  text = episodes.to_markdown(rows, episodes.outcome(rows, False))
  assert text.startswith('## b: wrong: passes what is visible')
  shown = ['**1. `keep`**', 'write b', 'def b(): 0', 'failed', '`add_demo`']
  shown += ['def b(): 1', 'passed']
  places = [text.index(part) for part in shown]
  assert places == sorted(places)
  assert 'hidden' not in text.split('\n', 1)[1]


def test_an_episode_shows_what_the_hidden_tests_say():
  rows = episodes.read(TRACE, 'ppo', 8)['b']
  failed = TestResult('failed', message='b(1) is\n2, expected 3')
  text = episodes.to_markdown(
    rows,
    'wrong',
    [('assert b(0) == 1', TestResult('passed')), ('assert b(1) == 3', failed)],
  )
  assert 'assert b(0) == 1  # passed\n' in text
  assert 'assert b(1) == 3  # failed: b(1) is 2, expected 3\n' in text


def test_outcomes_are_taken_in_turn():
  late, wrong, never = (
    episodes.outcome([{'visible_passed': False}, {'visible_passed': last}], won)
    for last, won in ((True, True), (True, False), (False, False))
  )
  at_once = episodes.outcome([{'visible_passed': True}], True)
  assert len({at_once, late, wrong, never}) == 4
  assert episodes.choose([never, never, late, at_once, never], 3) == [0, 2, 3]
  assert episodes.choose([never, never], 5) == [0, 1]


def test_the_row_of_a_choice_is_no_program():
  failed, passed = (
    {'code': 'x = 1', 'visible_passed': visible} for visible in (False, True)
  )
  chosen = {'code': None, 'visible_passed': False}
  assert 'first program' in episodes.outcome([passed, chosen], True)
  assert 'later program' in episodes.outcome([failed, passed, chosen], True)
  assert 'wrong' in episodes.outcome([passed, failed, chosen], False)
  assert 'not solved' in episodes.outcome([failed, chosen], False)
