"""Prompt refinement as an environment, single and vectorised."""

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from promptrl_jax.envs.refinement import (
  PromptRefinement,
  RefinementEnv,
  TextSpace,
  each,
)
from promptrl_jax.prompts.prompt import Prompt

RULES = ('Be brief.', 'Übe Nachsicht…', 'Give an example.')


def add_rule(prompt, action):
  return prompt.with_refinement(f'{prompt} {RULES[action]}', rule=int(action))


def count_characters(before, after, info):
  return (len(after) - len(before)) * info.get('score', 1.0)


def make_env(**options):
  return PromptRefinement(
    *(Prompt('Answer.'), add_rule, count_characters, 3),
    action_space=gymnasium.spaces.Discrete(3),
    **options,
  )


@pytest.mark.parametrize(
  'env',
  [
    make_env(),
    make_env(
      observe_fn=lambda prompt: np.array([len(prompt)], np.float32),
      observation_space=gymnasium.spaces.Box(0, 1e6, (1,), np.float32),
    ),
    PromptRefinement(
      Prompt(''), Prompt.with_refinement, lambda before, after, info: 1.0
    ),
  ],
  ids=['texts', 'numbers', 'free actions'],
)
@pytest.mark.filterwarnings('error::UserWarning')
def test_gymnasium_accepts_it(env):
  check_env(env, skip_render_check=True)


def test_an_episode_by_hand():
  env = make_env()
  assert env.current_prompt is None and env.step_count == 0
  observation, info = env.reset(seed=1)
  assert observation == 'Answer.' and info['step'] == 0
  text, reward, terminated, truncated, info = env.step(0)
  assert (text, reward) == ('Answer. Be brief.', 10.0)
  assert not terminated and not truncated
  assert info == {'prompt': env.current_prompt, 'step': 1}
  assert env.current_prompt.version == 1
  # A person's score reaches the reward as part of the info.
  _, reward, _, _, info = env.step(2, {'score': 0.5})
  assert reward == 0.5 * len(' Give an example.') and info['score'] == 0.5
  assert env.step(1)[2:4] == (False, True) and env.step_count == 3
  with pytest.raises(RuntimeError, match='call reset before step'):
    env.step(0)
  assert env.reset(options={'prompt': Prompt('Ask.')})[0] == 'Ask.'


def test_a_step_before_the_first_reset_is_refused():
  with pytest.raises(RuntimeError, match='call reset before step'):
    make_env().step(0)
  with pytest.raises(RuntimeError, match='call reset before step'):
    RefinementEnv(each(add_rule), each(count_characters)).step([0])


def test_a_rule_ends_an_episode_on_its_last_step_too():
  env = make_env(stop_fn=lambda before, after: after.version == 3)
  env.reset()
  assert [env.step(0)[2:4] for _ in range(3)] == [
    *((False, False), (False, False), (True, False)),
  ]


def test_open_rows_are_refined_in_one_call_and_the_others_left_alone():
  calls = []

  def refine(prompts, actions):
    calls.append((len(prompts), list(actions)))
    return each(add_rule)(prompts, actions)

  env = RefinementEnv(
    refine,
    each(count_characters),
    max_steps=2,
    stop_fn=lambda before, after: 'example' in after.text,
  )
  env.reset([Prompt('a'), Prompt('b'), Prompt('c')])
  prompts, rewards = env.step([0, 2, 0])
  assert [str(p) for p in prompts][1] == 'b Give an example.'
  assert rewards.dtype == np.float32 and rewards.tolist() == [10, 17, 10]
  assert env.terminated.tolist() == [False, True, False]
  prompts, rewards = env.step([0, 0, 1])
  assert rewards.tolist() == [10, 0, 15] and prompts[1].version == 1
  assert env.truncated.tolist() == [True, False, True] and env.done.all()
  assert env.step([0, 0, 0])[1].tolist() == [0, 0, 0]
  assert calls == [(3, [0, 2, 0]), (2, [0, 1])]


def test_rows_equal_single_episodes():
  env = RefinementEnv(each(add_rule), each(count_characters), max_steps=3)
  single = make_env()
  for row, start in enumerate(('Answer.', 'Ask.')):
    env.reset([Prompt('Answer.'), Prompt('Ask.')])
    single.reset(options={'prompt': Prompt(start)})
    for action in (1, 0, 2):
      prompts, rewards = env.step([action, action], [{'score': 0.5}] * 2)
      text, reward, *_ = single.step(action, {'score': 0.5})
      assert (str(prompts[row]), rewards[row]) == (text, reward)


def test_a_step_that_fails_changes_nothing():
  env = RefinementEnv(each(add_rule), lambda before, after, infos: [np.nan])
  env.reset([Prompt('a')])
  with pytest.raises(ValueError, match="returned nan for 'a': expected a fini"):
    env.step([0])
  assert env.prompts == (Prompt('a'),) and env.steps.tolist() == [0]
  with pytest.raises(ValueError, match='2 actions: expected 1'):
    env.step([0, 0])
  broken = RefinementEnv(lambda prompts, actions: ['b'], each(count_characters))
  broken.reset([Prompt('a')])
  with pytest.raises(TypeError, match="returned 'b': expected a Prompt"):
    broken.step([0])


def test_what_cannot_be_put_together_is_refused():
  with pytest.raises(ValueError, match='max_steps=0: expected 1 or more'):
    RefinementEnv(each(add_rule), each(count_characters), max_steps=0)
  with pytest.raises(ValueError, match='expected both or none'):
    make_env(observe_fn=len)


def test_a_space_of_texts_has_any_character_up_to_its_length():
  space = TextSpace(4, seed=0)
  assert 'äöü…' in space and 'abcde' not in space and 3 not in space
  assert all(space.sample() in space for _ in range(50))
  assert space == TextSpace(4) and space != TextSpace(5)
