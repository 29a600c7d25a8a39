"""The rewriter's tokens as actions."""

import re

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from promptrl_jax.envs.rewriting import RewritingEnv
from promptrl_jax.envs.rewriting_config import RewritingConfig
from promptrl_jax.envs.token_rewriting import TokenRewriting
from promptrl_jax.prompts import templates
from promptrl_jax.testing import tiny
from promptrl_jax.testing.scripted import ScriptedBackend

TASKS = tiny.tasks(3)
TOKENIZER = tiny.tokenizer()
GOOD = ' Please add 2 to a number.'


def write_program(request):
  found = re.search(r'add (\d+)', request.messages[-1].content)
  return f'\n  return x + {found.group(1)}' if found else '\n  return y'


@pytest.fixture
def make(pool):
  def make(tasks=TASKS, new_tokens=48, **settings):
    env = RewritingEnv(
      ScriptedBackend(write_program), pool, RewritingConfig(**settings)
    )
    return TokenRewriting(tasks, env, TOKENIZER, 80, new_tokens)

  return make


def play(env, text, end=True, **reset):
  """Rewards of each step, and the last of what a step returns."""
  env.reset(**reset)
  ids = TOKENIZER.encode([text])[0] + [TOKENIZER.eos_id] * end
  steps = [env.step(token) for token in ids]
  return [step[1] for step in steps], steps[-1], len(ids)


def test_gymnasium_accepts_it(make):
  check_env(make(new_tokens=4), skip_render_check=True)


def test_only_the_last_of_the_tokens_is_rewarded(make):
  rewards, (_, _, ended, cut, info), count = play(
    make(), GOOD, options={'index': 2}
  )
  assert len(rewards) == count > 5
  assert rewards == [0.0] * (count - 1) + [1.0]
  assert (ended, cut) == (True, False)
  assert info['rewrite'] == GOOD and info['flag'] == ''


def test_it_pays_what_the_environment_of_one_step_pays(make, pool):
  env = make(share_weight=0.5, word_cost=0.01)
  texts = [GOOD, ' Nobody knows what to do.', ' Do return x + 2', ' ']
  found = [play(env, text, options={'index': 2})[0][-1] for text in texts]
  result = env._env.rewards([TASKS[2]] * 4, texts, seed=0)
  np.testing.assert_allclose(found, result.rewards, rtol=1e-6)


def test_the_limit_truncates_and_what_is_cut_off_is_flagged(make):
  env = make(new_tokens=6)
  env.reset()
  for token in TOKENIZER.encode([GOOD])[0][:6]:
    _, reward, ended, cut, info = env.step(token)
  assert (ended, cut, reward) == (False, True, 0.0)
  assert info['flag'] in ('overlong', 'empty')
  with pytest.raises(RuntimeError, match='reset'):
    env.step(0)


def test_an_observation_is_prompt_and_rewrite(make):
  env = make()
  first, info = env.reset(options={'index': 1})
  prompt = TOKENIZER.render(
    templates.PLAIN.rewriter(
      templates.RewritePrompt(TASKS[1].statement, TASKS[1].entry_point)
    )
  )
  assert info['task_id'] == TASKS[1].task_id
  second = env.step(7)[0]
  for seen, row in ((first, prompt), (second, [*prompt, 7])):
    assert seen['length'] == len(row)
    np.testing.assert_array_equal(seen['tokens'][: len(row)], row)
    assert (seen['tokens'][len(row) :] == TOKENIZER.pad_id).all()
    assert env.observation_space.contains(seen)


def test_resets_walk_through_the_tasks(make):
  env = make()
  assert [env.reset()[1]['task_id'] for _ in range(4)] == [
    TASKS[k % 3].task_id for k in range(4)
  ]
  assert env.reset(seed=1)[1]['task_id'] == TASKS[0].task_id


def test_bad_settings_are_refused(make):
  with pytest.raises(ValueError, match='0 tasks'):
    make(tasks=())
  with pytest.raises(ValueError, match='new_tokens=0'):
    make(new_tokens=0)
