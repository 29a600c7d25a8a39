"""Strategies are scored once, by tests that nothing of theirs has seen."""

import dataclasses
import re

import numpy as np
import pytest

from promptrl_jax.envs.editing.config import EditingConfig
from promptrl_jax.envs.editing.env import EditingEnv
from promptrl_jax.evaluation import protocol
from promptrl_jax.evaluation.play import Entrant, LineUp
from promptrl_jax.execution import ProgramResult, SystemFailure
from promptrl_jax.strategies import policies
from promptrl_jax.strategies.base import OverOperators
from promptrl_jax.tasks import splits
from promptrl_jax.testing import tiny
from promptrl_jax.testing.scripted import ScriptedBackend

TASKS = tiny.tasks(4, 'test')


@pytest.fixture
def make_env(pool):
  def make(coder, rewriter=lambda request: ' Do it.'):
    return EditingEnv(
      ScriptedBackend(coder),
      ScriptedBackend(rewriter),
      pool,
      EditingConfig(max_steps=4),
    )

  return make


def adds_what_it_says(request):
  number = re.search(r'add (\d+)', request.messages[-1].content)
  return f'\n  return x + {number.group(1)}'


def passes_what_it_sees(request):
  seen = re.search(r'assert add\(1\) == (\d+)', request.messages[-1].content)
  return f'\n  return {seen.group(1)}'


def play(env, pool, strategy='keep', protocol_name='visible1', **changes):
  policy = policies.fixed(strategy, env.config.actions)
  entrant = Entrant(lambda seed: OverOperators(policy, env.config))
  settings = {'budget': 3, 'seed': 0} | changes
  line_up = LineUp(env.runner.backends, pool)
  return line_up.run(entrant, TASKS, protocol=protocol_name, **settings)


def test_a_right_program_passes_with_one_call(make_env, pool):
  run = play(make_env(adds_what_it_says), pool)
  assert run.passed.all() and (run.soft == 1.0).all()
  assert (run.calls == 1).all() and (run.attempts == 1).all()
  assert (run.prompt_tokens == 10).all() and (run.completion_tokens == 5).all()
  assert len(run.trace) == len(TASKS)


def test_passing_the_visible_test_alone_scores_nothing(make_env, pool):
  run = play(make_env(passes_what_it_sees), pool)
  assert not run.passed.any()
  assert (run.soft == 0.0).all() and (run.calls == 1).all()


def test_no_prompt_holds_a_hidden_test(make_env, pool):
  env = make_env(lambda request: '\n  return None')
  play(env, pool, 'semantic', budget=4)
  prompts = '\n'.join(
    env.runner.backends['coder'].prompts
    + env.runner.backends['rewriter'].prompts
  )
  assert len(env.runner.backends['rewriter'].prompts) == 2 * len(TASKS)
  for task in TASKS:
    assert task.tests[0] in prompts
    for hidden in splits.hidden_tests(task, 'visible1'):
      assert hidden not in prompts


def test_the_budget_is_spent_and_not_passed(make_env, pool):
  run = play(make_env(lambda request: '\n  return None'), pool)
  assert (run.calls == 3).all() and (run.attempts == 3).all()
  assert not run.passed.any()


def test_blind_scores_the_first_program_by_all_tests(make_env, pool):
  env = make_env(
    lambda r: '\n  return 1' if r.temperature else adds_what_it_says(r)
  )
  run = play(env, pool, protocol_name='blind')
  assert (run.attempts == 3).all()  # nothing to see, so nothing stops it
  assert run.passed.all()
  assert not any(
    'assert' in prompt for prompt in env.runner.backends['coder'].prompts
  )


def test_the_share_of_hidden_tests_is_reported(pool):
  # Right for 1 and 5, wrong for 10; the first assertion is not hidden.
  code = 'def add(x):\n  return x if x < 10 else 0'
  soft, masks = protocol.score([code], TASKS[:1], 'visible1', pool)
  assert masks == ['10']
  np.testing.assert_allclose(soft, [0.5])
  np.testing.assert_allclose(
    protocol.score([code], TASKS[:1], 'blind', pool)[0], [2 / 3]
  )


def test_no_program_scores_zero(pool):
  assert protocol.score([''], TASKS[:1], 'visible1', pool)[0] == [0.0]


class Broken:
  """A pool whose workers are lost."""

  def run(self, programs):
    return [ProgramResult('infra_error', None, ()) for _ in programs]


def test_a_lost_submission_gets_no_score():
  with pytest.raises(SystemFailure, match='tiny/test/0'):
    protocol.score(['def add(x): ...'], TASKS[:1], 'visible1', Broken())


def test_a_lost_episode_gets_no_score(make_env, pool):
  env = make_env(adds_what_it_says)
  with pytest.raises(SystemFailure, match='4 problems'):
    play(env, Broken())


def test_equal_seeds_give_equal_runs(make_env, pool):
  guess = lambda r: f'\n  return x + {r.seed % 5}'
  first, again = (play(make_env(guess), pool, seed=7) for _ in range(2))
  other = play(make_env(guess), pool, seed=8)
  assert first.trace == again.trace
  np.testing.assert_array_equal(first.soft, again.soft)
  assert first.trace != other.trace


def test_seeds_are_stacked_to_a_cell(make_env, pool):
  runs = [play(make_env(adds_what_it_says), pool, seed=s) for s in (0, 1)]
  cell = protocol.to_cell('keep', 3, 'visible1', TASKS, runs, 5.0)
  assert cell.passed.shape == (2, len(TASKS)) and cell.passed.all()
  assert cell.task_ids == tuple(task.task_id for task in TASKS)
  assert cell.optimisation_calls == 5.0
  with pytest.raises(ValueError, match='shape'):
    short = dataclasses.replace(runs[0], calls=runs[0].calls[1:])
    protocol.to_cell('keep', 3, 'visible1', TASKS, [short])


def test_how_each_problem_was_played_is_told_beside_its_score(make_env, pool):
  run = play(make_env(lambda r: '\n  return None'), pool, 'semantic', budget=3)
  for detail, attempts in zip(run.details, run.attempts, strict=True):
    assert detail.actions == 'semantic keep'
    assert detail.steps == attempts == 2
    assert detail.mask == '00' and not detail.error
    assert len(detail.prompt) == 16
  rewards = [
    sum(row['reward'] for row in run.trace if row['row'] == i)
    for i in range(len(TASKS))
  ]
  np.testing.assert_allclose([d.reward for d in run.details], rewards)


def test_the_trace_holds_the_requests_as_they_were_sent(make_env, pool):
  env = make_env(lambda r: '\n  return None')
  run = play(env, pool, 'semantic', budget=2)
  sent = [ask for row in run.trace for ask in row['sent']]
  contents = [ask['messages'][-1]['content'] for ask in sent]
  rewriter, coder = (env.runner.backends[r] for r in ('rewriter', 'coder'))
  assert sorted(contents) == sorted(rewriter.prompts + coder.prompts)
  assert {ask['role'] for ask in sent} == {'rewriter', 'coder'}
