"""Reflections that are read from a trace, and whose problems may be played."""

import dataclasses
import json

import pytest

from configs import compare
from experiments import remembering
from promptrl_jax import settings
from promptrl_jax.prompts.reflection import Reflection
from promptrl_jax.testing import tiny

TASKS = tiny.tasks(3, 'train')


def ask(text, temperature=0.0, seed=0):
  return {'messages': [text], 'temperature': temperature, 'seed': seed}


def row(task, strategy='reflexion', text='A hint.', sent=()):
  return {
    **{'task_id': task.task_id, 'strategy': strategy, 'action': 'reflect'},
    **{'step': 1, 'visible_passed': False, 'feedback': ''},
    **{'situation': f'{task.statement}\nx = 1\nFAILED', 'reflection': text},
    'sent': list(sent),
  }


@pytest.fixture
def write(tmp_path):
  def to_file(*rows):
    path = tmp_path / 'trace.jsonl'
    path.write_text(''.join(f'{json.dumps(one)}\n' for one in rows))
    return str(path)

  return to_file


def test_without_a_path_nothing_is_remembered():
  assert remembering.read('', TASKS) == remembering.Memory()


def test_calls_of_those_who_reflected_are_counted_once(write):
  other = row(TASKS[1], 'direct', sent=[ask('c')]) | {'action': 'execute'}
  path = write(
    row(TASKS[0], sent=[ask('a'), ask('b', 0.5, seed=1)]),
    # The same greedy request, another sample, and a reply that was refused.
    row(TASKS[0], text='', sent=[ask('a', seed=9), ask('b', 0.5, seed=2)]),
    other,
  )
  memory = remembering.read(path, TASKS[1:])
  situation = f'{TASKS[0].statement}\nx = 1\nFAILED'
  assert memory.reflections == (Reflection(situation, 'A hint.'),)
  assert memory.calls == 3


def test_a_request_that_two_strategies_share_is_one_call(write):
  path = write(
    row(TASKS[0], sent=[ask('a')]),
    row(TASKS[0], 'reflexion_ucs', sent=[ask('a'), ask('b')]),
  )
  assert remembering.read(path, TASKS[1:]).calls == 2


@pytest.mark.parametrize('lost', ['situation', 'reflection'])
def test_a_reflection_without_its_situation_is_refused(write, lost):
  whole = row(TASKS[0])
  del whole[lost]
  with pytest.raises(ValueError, match='trace.jsonl: a row of action reflect'):
    remembering.read(write(whole), TASKS[1:])


def test_a_problem_that_is_played_is_known_by_its_name_and_by_its_words(write):
  path = write(row(TASKS[0]))
  renamed = dataclasses.replace(TASKS[0], task_id='another/1')
  reworded = dataclasses.replace(TASKS[0], statement='Do it in other words.')
  for played in (renamed, reworded):
    with pytest.raises(ValueError, match=f'on 1 problem.*{TASKS[0].task_id}'):
      remembering.read(path, [TASKS[1], played])
  longer = f'{TASKS[0].statement} And more.'
  others = [dataclasses.replace(renamed, statement=longer), *TASKS[1:]]
  assert remembering.read(path, others).reflections


def test_problems_that_verifiers_are_fitted_on_are_played():
  given = compare.get_config('minicode2')
  config = settings.from_mapping(compare.Config, given.to_dict())
  tasks = {'train': [1, 2, 3], 'validation': [4], 'test': [5]}
  assert set(remembering.played_in(config, tasks)) == {4, 5}
  config = dataclasses.replace(
    config, verified=('direct',), verifier_problems=2
  )
  assert set(remembering.played_in(config, tasks)) == {1, 2, 4, 5}
