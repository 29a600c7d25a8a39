"""Rewriting and choosing instructions, with scripted models."""

import numpy as np
import pytest

from promptrl_jax.envs.rewriting.config import RewritingConfig
from promptrl_jax.envs.rewriting.env import RewritingEnv
from promptrl_jax.llm.ask import AskConfig
from promptrl_jax.strategies import prewrite
from promptrl_jax.tasks import instructions
from promptrl_jax.testing import tiny
from promptrl_jax.testing.scripted import ScriptedBackend
from promptrl_jax.types import Example

CONFIG = prewrite.RewriteConfig(samples=3, seed=5)
ENV = RewritingEnv(
  ScriptedBackend(lambda _: ''), None, RewritingConfig(reward='score')
)


def make_task(text='Spell it.'):
  return instructions.make_task(
    text,
    'qa',
    '{instruction}\nInput: {input}',
    [Example(word, (word[::-1],)) for word in ('secret one', 'secret two')],
  )


def rewriter():
  """Answers with the seed, so that samples can be told apart."""
  return ScriptedBackend(lambda r: f'Rewrite {r.seed} at {r.temperature:.0f}')


def test_prewrite_i_is_one_greedy_rewrite():
  model = rewriter()
  (rewrite,) = prewrite.rewrite_greedily(model, ENV, [make_task()])
  assert rewrite.statement == 'Rewrite 0 at 0'
  assert [r.temperature for r in model.batches[0]] == [0.0]
  assert rewrite.row('I')['instruction'] == 'Rewrite 0 at 0'


def test_prewrite_s_draws_k_samples_with_seeds_in_a_row():
  samples = prewrite.sample_rewrites(
    rewriter(), ENV, [make_task(), make_task('Other.')], CONFIG
  )
  assert [[r.statement for r in group] for group in samples] == [
    ['Rewrite 5 at 1', 'Rewrite 6 at 1', 'Rewrite 7 at 1']
  ] * 2


def test_a_rewriter_that_answers_nothing_leaves_the_statement():
  silent = ScriptedBackend(lambda _: '  ')
  (rewrite,) = prewrite.rewrite_greedily(silent, ENV, [make_task()])
  assert rewrite.statement == 'Spell it.'


def test_rewriters_are_given_no_input_and_are_asked_as_in_training():
  model, task = rewriter(), make_task()
  prewrite.rewrite_greedily(model, ENV, [task])
  prewrite.sample_rewrites(model, ENV, [task], CONFIG)
  assert len(model.prompts) == 4
  for request in [r for batch in model.batches for r in batch]:
    messages = tuple((m.role, m.content) for m in request.messages)
    assert messages == ENV.prompts([task])[0]
    assert task.statement in messages[0][1]
    assert 'secret' not in messages[0][1].lower()


def test_a_rewrite_ends_where_the_format_of_its_task_says():
  env = RewritingEnv(
    ScriptedBackend(lambda _: ''), None, ask=AskConfig(template='base')
  )
  model = rewriter()
  prewrite.rewrite_greedily(model, env, [*tiny.tasks(1), make_task()])
  assert [request.stop for request in model.batches[0]] == [('\n',), ()]


@pytest.mark.parametrize(
  ('rewards', 'chosen'),
  [
    ([[0, 1], [1, 1], [1, 1]], 1),  # The first of the best.
    ([[1, 0], [0, 1]], 0),  # A tie keeps the initial instruction.
    ([[0.1, 0.2, 0.3], [0.3, 0.2, 0.1]], 0),  # Whatever is rounded.
    ([[0.3, 0.2, 0.1], [0.1, 0.2, 0.3]], 0),
    ([[0, 0]], 0),
  ],
)
def test_the_first_of_the_best_candidates_is_chosen(rewards, chosen):
  assert prewrite.select([np.array(row) for row in rewards]) == chosen


@pytest.mark.parametrize(
  ('rewards', 'kept'),
  [
    ([[0.0], [1.0], [0.5], [0.7]], [0, 1]),  # The initial one stays.
    ([[0.0], [1.0], [0.5], [0.7], [0.6]], [0, 1, 3]),
    ([[0.5], [0.5], [0.5], [0.5]], [0, 1]),
    ([[0.0], [1.0]], [0]),
    ([[0.0]], [0]),
  ],
)
def test_the_better_half_goes_on(rewards, kept):
  assert prewrite.better_half([np.array(row) for row in rewards]) == kept


@pytest.mark.parametrize('rewards', [[], [[]], [[1.0], [1.0, 0.0]]])
def test_candidates_that_cannot_be_compared_are_refused(rewards):
  with pytest.raises(ValueError, match='expected the same number'):
    prewrite.select([np.array(row) for row in rewards])


def test_a_reward_that_is_no_number_is_refused():
  with pytest.raises(ValueError, match='not finite'):
    prewrite.select([np.array([1.0]), np.array([np.nan])])


@pytest.mark.parametrize(
  'change',
  [
    {'samples': 0},
    {'temperature': 0.0},
  ],
)
def test_settings_that_draw_nothing_are_refused(change):
  with pytest.raises(ValueError, match=next(iter(change))):
    prewrite.RewriteConfig(**change)
