"""Rewards of statements on each example, with scripted models."""

import numpy as np
import pytest

from promptrl_jax.envs.rewriting.config import RewritingConfig
from promptrl_jax.envs.rewriting.env import RewritingEnv
from promptrl_jax.evaluation.example_rewards import example_rewards
from promptrl_jax.llm.ask import AskConfig
from promptrl_jax.llm.cache import CachedBackend
from promptrl_jax.tasks import instructions
from promptrl_jax.testing import tiny
from promptrl_jax.testing.scripted import ScriptedBackend
from promptrl_jax.types import Answers, Example, Task


def make_task(words=('secret one', 'secret two')):
  return instructions.make_task(
    'Spell it.',
    'qa',
    '{instruction}\nInput: {input}',
    [Example(word, (word[::-1],)) for word in words],
    split='test',
  )


def spell(request):
  """Spells backwards, as it should, if the instruction ends in `!`."""
  text, given = request.messages[0].content.split('\nInput: ')
  return given[::-1] if text.endswith('!') else given


def make(model, **settings):
  return RewritingEnv(model, None, RewritingConfig(reward='score', **settings))


def test_rewards_are_of_each_example_in_order():
  env = make(ScriptedBackend(lambda r: r.messages[0].content[-1]))
  task = instructions.make_task(
    'Spell it.',
    'qa',
    '{instruction}\nInput: {input}',
    [Example(f'x{i}', ('2',)) for i in (1, 2, 3)],
  )
  question = Task('q', 'Say 9', Answers(('9',)))
  rows = example_rewards(env, [task, question], ['Spell.', 'Say 9'])
  assert [row.tolist() for row in rows] == [[0.0, 1.0, 0.0], [1.0]]


def test_another_instruction_gives_other_rewards():
  rows = example_rewards(
    make(ScriptedBackend(spell)), [make_task()] * 2, ['Spell', 'Spell!']
  )
  assert [row.tolist() for row in rows] == [[0.0, 0.0], [1.0, 1.0]]


def test_all_candidates_meet_the_same_examples_in_one_call():
  model = ScriptedBackend(spell)
  candidates = [f'Try {i}' for i in range(4)]
  task = instructions.subsample(make_task([str(i) for i in range(50)]), 7, 1)
  example_rewards(make(model), [task] * 4, candidates)
  (batch,) = model.batches
  inputs = [r.messages[0].content.split('Input: ')[1] for r in batch]
  assert len(set(inputs)) == 7
  assert inputs == inputs[:7] * 4
  assert {r.temperature for r in batch} == {0.0}


def test_answers_at_a_temperature_are_averaged():
  model = ScriptedBackend(lambda r: spell(r) if r.seed % 2 else spell(r)[::-1])
  env = RewritingEnv(
    model,
    None,
    RewritingConfig(reward='score'),
    AskConfig(first_temperature=0.3),
  )
  (row,) = example_rewards(env, [make_task(('ab',))], ['Spell!'], answers=4)
  requests = [request for batch in model.batches for request in batch]
  assert len({request.seed for request in requests}) == 4
  assert {request.temperature for request in requests} == {0.3}
  right = sum(request.seed % 2 for request in requests)
  assert row.tolist() == [right / 4]
  (later,) = example_rewards(
    env, [make_task(('ab',))], ['Spell!'], answers=3, first=2
  )
  again = [request for batch in model.batches[-3:] for request in batch]
  assert again[:2] == requests[2:] and again[2] not in requests
  assert later.tolist() == [sum(request.seed % 2 for request in again) / 3]


def test_a_second_evaluation_asks_the_model_nothing(tmp_path):
  models = [ScriptedBackend(spell) for _ in range(2)]
  rows = [
    example_rewards(
      make(CachedBackend(model, tmp_path / 'c.sqlite')),
      [make_task()] * 2,
      ['Spell', 'Go!'],
    )
    for model in models
  ]
  assert [len(model.prompts) for model in models] == [4, 0]
  np.testing.assert_array_equal(*rows)


class Weigher(ScriptedBackend):
  """Also says how probable a label is: a half for each token, one or two."""

  def score(self, requests, texts, given=''):
    return [np.log([0.5] * (1 + (text == 'b'))) for text in texts]


@pytest.mark.parametrize(
  ('reward', 'expected'),
  [
    ('perplexity', [-np.log(2)] * 2),
    ('perplexity_f1', [1 - np.log(2), -np.log(2)]),
    ('f1', [1.0, 0.0]),
  ],
)
def test_rewards_by_log_probs_are_of_each_example_too(reward, expected):
  env = RewritingEnv(
    Weigher(lambda _: 'a'), None, RewritingConfig(reward=reward)
  )
  (row,) = example_rewards(env, [make_task(('a', 'b'))], ['Spell'])
  np.testing.assert_allclose(row, expected)


def test_a_program_is_one_example(pool):
  env = RewritingEnv(ScriptedBackend(lambda _: '\n  return x + 2'), pool)
  task = tiny.tasks(3, 'test')[2]
  (row,) = example_rewards(env, [task], [task.statement])
  assert row.tolist() == [1.0]


def test_no_statements_have_no_rewards():
  assert example_rewards(make(ScriptedBackend(spell)), [], []) == []
