"""Few-shot prompting, as a strategy and as an operator."""

import dataclasses
import re

import pytest

from promptrl_jax.envs.editing.config import EditingConfig
from promptrl_jax.envs.editing.env import EditingEnv
from promptrl_jax.evaluation.play import Entrant, LineUp
from promptrl_jax.operators import MOST_EXAMPLES
from promptrl_jax.prompts import examples
from promptrl_jax.strategies import base
from promptrl_jax.tasks import splits
from promptrl_jax.testing import tiny
from promptrl_jax.testing.scripted import ScriptedBackend

TASKS = tiny.tasks(3, 'test')
TRAIN = tiny.tasks(6, 'train')
LIBRARY = examples.ExampleLibrary(examples.from_tasks(TRAIN))


def shown(request):
  """How many worked examples a prompt has."""
  return request.messages[-1].content.count('###') - 1


def play(pool, coder, budget=4, options=None):
  models = {'rewriter': ScriptedBackend(coder), 'coder': ScriptedBackend(coder)}
  entrant = Entrant.of(base.named('fewshot'))
  return LineUp(models, pool, options=options).run(
    entrant, TASKS, protocol='visible1', budget=budget, seed=0
  )


def test_examples_are_shown_and_samples_follow_a_failure(pool):
  seen = []

  def coder(request):
    seen.append((shown(request), request.temperature))
    return '\n  return 12345'

  run = play(pool, coder, options={'examples': LIBRARY})
  assert run.calls.tolist() == [4, 4, 4]
  assert {count for count, _ in seen} == {MOST_EXAMPLES}
  assert [t for _, t in seen] == [0.0] * 3 + [0.8] * 9


def test_it_stops_at_a_program_that_passes(pool):
  def coder(request):
    asked = re.findall(r'to add (\d+) to', request.messages[-1].content)[-1]
    return f'\n  return x + {asked}'

  run = play(pool, coder, options={'examples': LIBRARY})
  assert run.calls.tolist() == [1, 1, 1]
  assert run.passed.all()


def test_without_a_library_the_attempt_says_what_is_missing(pool):
  run = play(pool, lambda request: '')
  assert 'ExampleLibrary' in run.details[0].error


@pytest.mark.parametrize('options', [None, {'examples': LIBRARY}])
def test_the_operator_adds_one_example_after_another(options, pool):
  seen = []

  def coder(request):
    seen.append((shown(request), request.temperature))
    return '\n  return 12345'

  config = EditingConfig(
    actions=('keep', 'add_demo', 'submit'), budget=6, max_steps=6
  )
  backend = ScriptedBackend(coder)
  env = EditingEnv(backend, backend, pool, config, options=options)
  problem = splits.reveal(TASKS[0], 'visible1')
  _, mask = env.reset([problem], [0])
  allowed = [bool(mask[0, 1])]
  for name in ('keep', *['add_demo'] * 3, 'keep'):
    _, mask, _ = env.step([name])
    allowed.append(bool(mask[0, 1]))
  if options is None:  # No example: each step asks the same.
    assert not any(allowed)
    assert [count for count, _ in seen] == [0] * 5
  else:
    assert allowed == [True, True, True, True, False, False]
    assert [count for count, _ in seen] == [0, 1, 2, 3, 3]
    assert [t for _, t in seen] == [0.0, 0.0, 0.0, 0.0, 0.8]


def test_a_training_problem_is_not_shown_its_own_program(pool):
  seen = []

  def coder(request):
    seen.append(request.messages[-1].content)
    return '\n  return 12345'

  config = EditingConfig(actions=('keep', 'add_demo'), budget=3)
  backend = ScriptedBackend(coder)
  options = {'examples': LIBRARY}
  env = EditingEnv(backend, backend, pool, config, options=options)
  env.reset([splits.reveal_for_training(TRAIN[0], 'visible1')], [0])
  for _ in range(3):
    env.step(['add_demo'])
  assert TRAIN[0].reference.strip() not in seen[-1]
  other = dataclasses.replace(TASKS[0], reference='')
  assert examples.from_tasks([other]) == ()
