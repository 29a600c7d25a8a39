"""The prompt-edit environment, single and vectorised."""

import dataclasses

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from promptrl_jax.envs.editing.config import EditingConfig
from promptrl_jax.envs.editing.env import EditingEnv
from promptrl_jax.envs.gym import PromptEdit
from promptrl_jax.operators import DEFAULT as ACTIONS
from promptrl_jax.operators import OPERATORS
from promptrl_jax.rewards.tests import StepRewardConfig
from promptrl_jax.tasks import splits
from promptrl_jax.testing import tiny


def reset(env, problems, **kwargs):
  return env.reset(problems, [0] * len(problems), **kwargs)


@pytest.fixture
def gym_env(make_env, problems):
  env = make_env()
  return PromptEdit(
    problems,
    env.runner.backends['coder'],
    env.runner.backends['rewriter'],
    env.runner._pool,
  )


def test_gymnasium_accepts_it(gym_env):
  check_env(gym_env, skip_render_check=True)


def test_the_legacy_form_passes_too(make_env, problems):
  env = make_env()
  config = EditingConfig(
    actions=('keep', 'semantic', 'lexical'), observation='legacy'
  )
  check_env(
    PromptEdit(
      problems,
      env.runner.backends['coder'],
      env.runner.backends['rewriter'],
      env.runner._pool,
      config,
    ),
    skip_render_check=True,
  )


def test_info_names_the_action(gym_env):
  gym_env.reset(seed=0)
  _, _, _, _, info = gym_env.step(ACTIONS.index('lexical'))
  assert info['action'] == 'lexical'
  assert info['action_names'] == ACTIONS


def test_resets_walk_the_whole_data_set(gym_env):
  ids = {gym_env.reset()[1]['task_id'] for _ in range(8)}
  assert len(ids) == 8


def test_step_after_the_end_is_refused(gym_env):
  with pytest.raises(RuntimeError, match='reset'):
    gym_env.step(0)
  assert isinstance(gym_env, gymnasium.Env)


def test_one_batched_call_per_role_and_one_pool_call(make_env, problems):
  env = make_env()
  runs = []
  pool_run = env.runner._pool.run
  env.runner._pool = type(
    'Counting', (), {'run': lambda _, p: runs.append(len(p)) or pool_run(p)}
  )()
  reset(env, problems)
  env.step(['keep', 'semantic'] * 4)
  assert [len(batch) for batch in env.runner.backends['coder'].batches] == [8]
  assert [len(batch) for batch in env.runner.backends['rewriter'].batches] == [
    4
  ]
  assert runs == [8]


def test_solving_terminates_and_running_out_truncates(make_env, problems):
  env = make_env(budget=2)
  reset(env, problems)
  for _ in range(2):
    env.step(['keep'] * 2 + ['semantic'] + ['keep'] * 5)
  solved, failed = env.episodes[2], env.episodes[0]
  assert (solved.terminated, solved.truncated) == (True, False)
  assert (failed.terminated, failed.truncated) == (False, True)


def test_the_step_limit_truncates(make_env, problems):
  env = make_env(max_steps=3, budget=100)
  reset(env, problems[:1])
  for _ in range(3):
    assert not env.episodes[0].done
    env.step(['resample'])
  assert env.episodes[0].truncated and not env.episodes[0].terminated


def test_submit_ends_with_the_best_program(make_env, problems):
  env = make_env()
  reset(env, problems[:1])
  env.step(['keep'])
  code = env.episodes[0].code
  env.step(['submit'])
  assert env.episodes[0].terminated
  assert env.episodes[0].best_code == code
  assert env.episodes[0].calls == 1


def test_two_rewrites_accumulate_and_reset_undoes_them(make_env, problems):
  env = make_env(
    rewriter=lambda r: r.messages[0].content.split('\n')[0] + ' Z.'
  )
  reset(env, problems[3:4])
  original = problems[3].statement
  env.step(['semantic'])
  env.step(['semantic'])
  assert env.episodes[0].statement == original + ' Z. Z.'
  env.step(['reset_prompt'])
  assert env.episodes[0].statement == original


def test_without_accumulation_each_edit_starts_anew(make_env, problems):
  env = make_env(
    rewriter=lambda r: r.messages[0].content.split('\n')[0] + ' Z.',
    accumulate=False,
  )
  reset(env, problems[3:4])
  env.step(['semantic'])
  env.step(['semantic'])
  assert env.episodes[0].statement == problems[3].statement + ' Z.'


def test_the_rewriter_gets_statement_name_and_feedback(make_env, problems):
  env = make_env()
  reset(env, problems[5:6])
  env.step(['keep'])
  env.step(['semantic'])
  (prompt,) = env.runner.backends['rewriter'].prompts
  assert problems[5].statement in prompt
  assert 'name: add' in prompt
  assert 'NameError' in prompt


def test_repair_shows_program_and_failure(make_env, problems):
  env = make_env()
  reset(env, problems[3:4])
  env.step(['keep'])
  env.step(['repair'])
  prompt = env.runner.backends['coder'].prompts[-1]
  assert 'return y' in prompt and 'NameError' in prompt
  assert env.episodes[0].terminated  # the scripted repair is right for 3


def test_actions_that_cannot_be_taken_become_keep(make_env, problems):
  env = make_env(budget=1)
  _, masks = reset(env, problems[:1])
  allowed = dict(zip(ACTIONS, masks[0], strict=True))
  assert not allowed['semantic']  # costs two calls
  assert not allowed['repair'] and not allowed['submit']
  assert not allowed['reset_prompt']
  env.step(['semantic'])
  assert env.trace[-1]['action'] == 'keep'
  assert env.episodes[0].calls == 1


def test_calls_never_exceed_the_budget(make_env, problems):
  env = make_env(budget=5)
  reset(env, problems)
  rng = np.random.default_rng(0)
  for _ in range(10):
    env.step([ACTIONS[i] for i in rng.integers(len(ACTIONS), size=8)])
  assert all(e.calls <= 5 for e in env.episodes)
  by_row = [0] * 8
  for row in env.trace:
    by_row[row['row']] += OPERATORS[row['action']].calls
  assert by_row == [e.calls for e in env.episodes]


def test_a_repeated_prompt_is_sampled_and_a_new_one_greedy(make_env, problems):
  env = make_env()
  reset(env, problems[:1])
  for action in ('keep', 'keep', 'resample', 'lexical'):
    env.step([action])
  temperatures = [
    batch[0].temperature for batch in env.runner.backends['coder'].batches
  ]
  assert temperatures[:3] == [0.0, 0.8, 0.8]


def test_programs_are_compared_while_none_is_right(make_env, problems):
  bodies = iter(('x - 5', '-5 + x', 'x - 6', 'x - 5'))
  env = make_env(
    coder=lambda request: f'\n  return {next(bodies)}', sees_agreement=True
  )
  seen = [reset(env, problems[3:4])[0]]
  seen += [env.step(['resample'])[0] for _ in range(4)]
  # Of itself; of both; of the last one alone; of three of four.
  expected = [(0, 0, 0), (1, 1, 1), (1, 1, 1 / 2)]
  expected += [(1 / 3, 2 / 3, 2 / 3), (3 / 4, 3 / 4, 2 / 4)]
  np.testing.assert_allclose([row[0, -3:] for row in seen], expected)
  assert env.episodes[0].calls == 4
  # A right one ends the episode, and is compared with none.
  env = make_env(coder=lambda request: '\n  return x + 3', sees_agreement=True)
  reset(env, problems[3:4])
  env.step(['keep'])
  assert env.episodes[0].terminated and not env.episodes[0].outcomes


def test_equal_seeds_give_equal_traces(make_env, problems):
  traces = []
  for _ in range(2):
    env = make_env()
    reset(env, problems)
    for action in ('lexical', 'keep', 'semantic'):
      env.step([action] * 8)
    traces.append(env.trace)
  assert traces[0] == traces[1]


def test_hidden_tests_reach_no_model(make_env):
  tasks = tiny.tasks(6, 'train')
  env = make_env(
    coder=lambda r: '\n  return x', rewriter=lambda r: ' Add it up.'
  )
  problems = [splits.reveal_for_training(t, 'visible1') for t in tasks]
  reset(env, problems)
  for action in ('keep', 'semantic', 'repair', 'lexical', 'resample'):
    env.step([action] * 6)
  inputs = '\n'.join(
    env.runner.backends['coder'].prompts
    + env.runner.backends['rewriter'].prompts
  )
  assert any(task.tests[0] in inputs for task in tasks)
  for task in tasks:
    for hidden in task.tests[1:]:
      assert hidden not in inputs
      assert hidden.removeprefix('assert ').split(' ==')[0] not in inputs


def test_training_reward_counts_all_tests(make_env):
  task = tiny.tasks(2, 'train')[0]  # add 0
  problem = splits.reveal_for_training(task, 'visible1')
  # Right on the visible assertion, add(1) == 1, and on no other.
  env = make_env(
    coder=lambda r: '\n  return 1', step_reward=StepRewardConfig(call_cost=0.0)
  )
  reset(env, [problem])
  _, _, values = env.step(['keep'])
  assert env.episodes[0].terminated
  assert env.episodes[0].best_share == pytest.approx(1 / 3)
  assert values[0] == 0.0


def test_a_lost_program_is_no_failure(make_env, problems):
  env = make_env()

  class Broken:
    def run(self, programs):
      from promptrl_jax.execution.program import ProgramResult

      return [ProgramResult('infra_error', None, ()) for _ in programs]

  env.runner._pool = Broken()
  reset(env, problems[:1])
  env.step(['keep'])
  assert env.episodes[0].lost and env.episodes[0].done
  assert not env.episodes[0].terminated and not env.trace


def test_a_prompt_that_is_too_long_loses_words_from_the_left(
  make_env, problems
):
  env = make_env()
  env.runner.backends['coder']._prompt_limit = 30
  long = dataclasses.replace(
    problems[0], statement=' '.join(f'w{i}' for i in range(60))
  )
  reset(env, [long])
  env.step(['keep'])
  prompt = env.runner.backends['coder'].prompts[-1]
  assert 'w59' in prompt and 'w0 ' not in prompt
  assert long.signature in prompt and long.visible_tests[0] in prompt


def test_a_prompt_that_cannot_fit_is_a_failure_of_the_model(make_env, problems):
  env = make_env()
  env.runner.backends['coder']._prompt_limit = 2
  reset(env, problems[:1])
  env.step(['keep'])
  episode = env.episodes[0]
  assert episode.status == 'no_code'
  assert episode.calls == 0 and not episode.terminated


def test_unknown_settings_are_refused(pool):
  with pytest.raises(ValueError, match='shout'):
    EditingConfig(actions=('keep', 'shout'))
  with pytest.raises(ValueError, match='"keep"'):
    EditingConfig(actions=('semantic',))
  with pytest.raises(ValueError, match='poor'):
    EditingConfig(observation='poor')
  assert EditingEnv  # the class itself takes only a valid config


def test_tokens_are_paid_for_where_they_have_a_price(make_env, problems):
  rewards = []
  for prices in (None, [0.0, 2.0]):
    env = make_env()
    env.reset(problems[:2], [0, 0], prices=prices)
    rewards.append(env.step(['semantic', 'semantic'])[2])
  free, paid = rewards
  second = env.episodes[1]
  tokens = second.prompt_tokens + second.completion_tokens
  assert second.calls == 2 and tokens > 0
  np.testing.assert_allclose(free - paid, [0, 2.0 * tokens / 1000], rtol=1e-5)
