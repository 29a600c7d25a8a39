"""Strategies: text by generators, policies over operators by one adapter."""

import numpy as np
import pytest

from promptrl_jax.envs.editing import rollout
from promptrl_jax.envs.editing.config import EditingConfig
from promptrl_jax.envs.editing.env import EditingEnv
from promptrl_jax.evaluation.evaluate import evaluate
from promptrl_jax.evaluation.play import Entrant, LineUp
from promptrl_jax.llm.ask import AskConfig, coder_prompt, make_tools
from promptrl_jax.llm.attempt import Execute
from promptrl_jax.llm.preflight import CandidateCost
from promptrl_jax.strategies import base, policies
from promptrl_jax.tasks import splits
from promptrl_jax.testing import tiny
from promptrl_jax.testing.scripted import ScriptedBackend

TASKS = tiny.tasks(6, 'test')


def guess(request):
  return f'\n  return x + {request.seed % 7}'


def backends():
  return {
    'rewriter': ScriptedBackend(
      lambda request: ' Add it up, number by number.'
    ),
    'coder': ScriptedBackend(guess),
  }


@pytest.mark.parametrize('kind', ['uniform', 'fixed'])
def test_the_adapter_plays_what_the_environment_plays(kind, pool):
  config = EditingConfig(budget=5, max_steps=5)
  make = {
    'uniform': lambda: policies.uniform(3),
    'fixed': lambda: policies.fixed('semantic', config.actions),
  }[kind]
  models = backends()
  env = EditingEnv(models['coder'], models['rewriter'], pool, config)
  problems = [splits.reveal(task, 'visible1') for task in TASKS]
  rollout.collect(
    env, make(), problems, [7] * 6, [5] * 6, [(i, 6) for i in range(6)]
  )
  run = LineUp(backends(), pool).run(
    Entrant(lambda seed: base.OverOperators(make(), config)),
    TASKS,
    protocol='visible1',
    budget=5,
    seed=7,
  )
  assert run.trace == env.trace
  np.testing.assert_array_equal(run.calls, [e.calls for e in env.episodes])


def test_each_episode_is_at_a_step_of_its_own():
  config = EditingConfig(budget=5, max_steps=5)
  listed = policies.open_loop(('keep', 'lexical', 'semantic'), config.actions)
  strategy = base.OverOperators(listed, config)
  tools = make_tools(AskConfig(), backends())
  problems = [splits.reveal(task, 'visible1') for task in TASKS[:3]]
  plays = strategy.start(problems, tools, budget=5, seed=0)
  deciding = [next(play) for _, play in plays]
  for decide, step in zip(deciding, (2, 0, 1), strict=True):
    decide.episode.code, decide.episode.steps = 'def f(): ...', step
  names = deciding[0].policy([decide.episode for decide in deciding])
  assert names == ['semantic', 'keep', 'lexical']


def test_a_text_strategy_stands_in_the_line_up(pool):
  def until_it_passes(attempt, tools):
    code = ''
    while attempt.budget_left:
      code = yield from tools.write_program(
        attempt, coder_prompt(attempt), resample=True
      )
      result = yield Execute(code)
      if result.passed:
        break
    return code

  run = LineUp(backends(), pool).run(
    Entrant(lambda seed: base.TextStrategy(until_it_passes)),
    TASKS,
    protocol='visible1',
    budget=8,
    seed=0,
  )
  assert [detail.error for detail in run.details] == [''] * 6
  assert run.passed.any()
  assert (run.calls == run.attempts).all() and run.calls.max() <= 8
  # Resampling is what `best_of_b` does, too: equal draws, equal results.
  config = EditingConfig(budget=8)
  repeated = LineUp(backends(), pool).run(
    Entrant(
      lambda seed: base.OverOperators(
        policies.fixed('resample', config.actions), config
      )
    ),
    TASKS,
    protocol='visible1',
    budget=8,
    seed=0,
  )
  np.testing.assert_array_equal(run.calls, repeated.calls)
  np.testing.assert_array_equal(run.passed, repeated.passed)


def test_what_is_no_strategy_is_refused_where_it_is_registered():
  with pytest.raises(TypeError, match='generator function'):
    base.register('plain', lambda attempt, tools: 'code', CandidateCost())

  def short(attempt):
    yield

  with pytest.raises(TypeError, match=r'\(attempt, tools\)'):
    base.register('short', short, CandidateCost())

  def dear(attempt, tools):
    yield

  with pytest.raises(TypeError, match="'dear': cost=2, expected a CandidateC"):
    base.register('dear', dear, 2)
  with pytest.raises(ValueError, match='expected one of'):
    base.STRATEGIES['nobody']


@pytest.mark.parametrize(
  'given', [{'budget': 0}, {'tasks': []}, {'seeds': ()}], ids=str
)
def test_an_evaluation_of_nothing_is_refused_before_any_call(pool, given):
  model = ScriptedBackend(str)
  options = {'tasks': TASKS, **given}
  with pytest.raises(ValueError, match='at least one model call per problem'):
    evaluate(('best_of_n',), coder=model, pool=pool, **options)
  assert not model.batches
