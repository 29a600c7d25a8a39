import gymnasium.utils.env_checker
import numpy as np
import pytest

from promptrl_jax.envs import token_rewrite
from promptrl_jax.envs.token_rewrite import TokenRewrite
from promptrl_jax.llm.backend import Message, Request
from promptrl_jax.llm.jax_lm import JaxLM
from promptrl_jax.parallel.mesh import make_data_mesh
from promptrl_jax.sampling import EngineConfig, Sampler
from promptrl_jax.tasks.instructions import (
  Example,
  Instruction,
  InstructionTask,
)
from promptrl_jax.testing import tiny

TASKS = [
  InstructionTask(
    Instruction(text), 'qa', '{instruction}\n{input}', (Example('1', ('2',)),)
  )
  for text in ('add', 'Write a function')
]


def length_rewards(pairs):
  """Two examples: the length of the instruction, and ten more."""
  return [
    np.array([0.0, 10.0]) + len(instruction.text) for _, instruction in pairs
  ]


def make(max_tokens=6):
  return TokenRewrite(TASKS, tiny.tokenizer(), length_rewards, max_tokens)


def test_it_keeps_the_rules_of_gymnasium():
  gymnasium.utils.env_checker.check_env(make(), skip_render_check=True)


def test_the_reward_comes_with_the_token_that_ends_the_text():
  env, tokenizer = make(), tiny.tokenizer()
  (tokens,) = tokenizer.encode(['add'])
  env.reset(seed=0)
  rewards = []
  for token in [*tokens, tokenizer.eos_id]:
    observation, reward, terminated, truncated, info = env.step(token)
    rewards.append(reward)
  assert rewards == [0.0] * len(tokens) + [len('add') + 5.0]
  assert terminated and not truncated
  assert info == {'instruction': 'add'}
  written = observation['tokens']
  assert written[: len(tokens)].tolist() == tokens
  assert (written[len(tokens) + 1 :] == token_rewrite.EMPTY).all()
  with pytest.raises(RuntimeError, match='call reset'):
    env.step(tokens[0])


def test_an_episode_is_as_long_as_its_tokens_and_ends_at_the_limit():
  env = make(max_tokens=3)
  (tokens,) = tiny.tokenizer().encode(['x'])
  env.reset(seed=0)
  steps = [env.step(tokens[0]) for _ in range(3)]
  assert [s[1] for s in steps] == [0.0, 0.0, len('xxx') + 5.0]
  assert [(s[2], s[3]) for s in steps] == [(False, False)] * 2 + [(False, True)]


def test_an_empty_text_keeps_the_initial_instruction():
  env = make()
  env.reset(options={'index': 1})
  *_, info = env.step(tiny.tokenizer().eos_id)
  assert info == {'instruction': 'Write a function'}


def test_tasks_come_in_turn_and_a_seed_starts_again():
  env = make()
  seen = [env.reset()[0]['task'] for _ in range(3)]
  assert seen == [0, 1, 0]
  assert env.reset(seed=3)[0]['task'] == 0


def test_token_rewards_are_those_of_episodes_with_the_sampled_tokens():
  tokenizer = tiny.tokenizer()
  shapes = EngineConfig(4, (16, 48), 8)
  sampler = Sampler(
    tiny.CONFIG, tiny.params(), tokenizer, make_data_mesh(), shapes
  )
  model = JaxLM('tiny', sampler)
  requests = [
    Request((Message('user', 'add'),), temperature=1.0, seed=s, max_tokens=8)
    for s in range(4)
  ]
  env = make(max_tokens=8)
  mask, totals, episodes = [], [], []
  for answer in model.complete(requests):
    (tokens,) = tokenizer.encode([answer.text])
    tokens = [*tokens, tokenizer.eos_id][:8]
    env.reset(seed=0)
    episodes.append([env.step(token)[1] for token in tokens])
    mask.append([i < len(tokens) for i in range(8)])
    totals.append(episodes[-1][-1])
  found = token_rewrite.token_rewards(np.array(mask), np.array(totals))
  for row, episode in zip(found, episodes, strict=True):
    assert row[: len(episode)].tolist() == pytest.approx(episode)
    assert not row[len(episode) :].any()


@pytest.mark.parametrize('mask', [[[False, False]], [[False, True]]])
def test_rows_without_tokens_or_with_gaps_are_refused(mask):
  with pytest.raises(ValueError, match='at the start of each row'):
    token_rewrite.token_rewards(np.array(mask), np.array([1.0]))


def test_bad_settings_and_tokens_are_refused():
  with pytest.raises(ValueError, match='at least one task'):
    TokenRewrite([], tiny.tokenizer(), length_rewards, 4)
  with pytest.raises(ValueError, match='max_tokens=0'):
    make(0)
  env = make()
  env.reset()
  with pytest.raises(ValueError, match='token 100000: expected 0 to'):
    env.step(100_000)
