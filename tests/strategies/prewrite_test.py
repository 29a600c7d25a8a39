"""Rewriting and choosing instructions, with scripted models."""

import numpy as np
import pytest

from promptrl_jax.llm.cache import CachedBackend
from promptrl_jax.prompts import meta
from promptrl_jax.strategies import prewrite
from promptrl_jax.tasks.instructions import (
  Example,
  Instruction,
  InstructionTask,
)
from promptrl_jax.testing.scripted import ScriptedBackend

META = meta.make_meta('generic_b')
CONFIG = prewrite.RewriteConfig(samples=3, seed=5)
SPELL = Instruction('Spell it.')


def make_task(inputs=('secret one', 'secret two')):
  return InstructionTask(
    SPELL, 'qa', '{instruction}\nInput: {input}',
    tuple(Example(text, (text[::-1],)) for text in inputs),
  )  # fmt: skip


def rewriter():
  """Answers with the seed, so that samples can be told apart."""
  return ScriptedBackend(lambda r: f'Rewrite {r.seed} at {r.temperature:.0f}')


def task_model():
  """Spells backwards, as it should, if the instruction ends in `!`."""

  def answer(request):
    text, given = request.messages[0].content.split('\nInput: ')
    return given[::-1] if text.endswith('!') else given

  return ScriptedBackend(answer)


def test_prewrite_i_is_one_greedy_rewrite():
  model = rewriter()
  (found,) = prewrite.rewrite_greedily(model, META, [SPELL], CONFIG)
  assert found.instruction == Instruction('Rewrite 0 at 0')
  assert [r.temperature for r in model.batches[0]] == [0.0]


def test_prewrite_s_draws_k_samples_with_seeds_in_a_row():
  found = prewrite.sample_rewrites(
    rewriter(), META, [SPELL, Instruction('Other.')], CONFIG
  )
  assert [[r.instruction.text for r in some] for some in found] == [
    ['Rewrite 5 at 1', 'Rewrite 6 at 1', 'Rewrite 7 at 1']
  ] * 2


def test_what_a_rewriter_is_given_holds_no_input_of_the_task():
  model, task = rewriter(), make_task()
  prewrite.rewrite_greedily(model, META, [task.instruction], CONFIG)
  prewrite.sample_rewrites(model, META, [task.instruction], CONFIG)
  assert len(model.prompts) == 4
  for prompt in model.prompts:
    assert task.instruction.text in prompt
    assert 'secret' not in prompt.lower()


def test_rewards_are_of_each_example_in_order():
  model = ScriptedBackend(lambda r: r.messages[0].content[-1])
  task = InstructionTask(
    SPELL, 'qa', '{instruction}\nInput: {input}',
    tuple(Example(f'x{i}', ('2',)) for i in (1, 2, 3)),
  )  # fmt: skip
  other = make_task(('9',))
  rows = prewrite.make_reward_fn(model)([(task, SPELL), (other, SPELL)])
  assert [row.tolist() for row in rows] == [[0.0, 1.0, 0.0], [1.0]]


def test_another_instruction_gives_other_rewards():
  task = make_task()
  rows = prewrite.make_reward_fn(task_model())(
    [(task, SPELL), (task, Instruction('Spell!'))]
  )
  assert [row.tolist() for row in rows] == [[0.0, 0.0], [1.0, 1.0]]


def test_all_candidates_meet_the_same_examples_in_one_call():
  model = task_model()
  reward_fn = prewrite.make_reward_fn(model)
  candidates = [Instruction(f'Try {i}') for i in range(4)]
  task = prewrite.subsample(make_task([str(i) for i in range(50)]), 7, seed=1)
  reward_fn([(task, candidate) for candidate in candidates])
  (batch,) = model.batches
  inputs = [r.messages[0].content.split('Input: ')[1] for r in batch]
  assert len(set(inputs)) == 7
  assert inputs == inputs[:7] * 4
  assert {r.temperature for r in batch} == {0.0}


def test_a_second_evaluation_asks_the_model_nothing(tmp_path):
  pairs = [(make_task(), SPELL), (make_task(), Instruction('Go!'))]
  model = task_model()
  first = prewrite.make_reward_fn(CachedBackend(model, tmp_path / 'c.sqlite'))(
    pairs
  )
  again = task_model()
  second = prewrite.make_reward_fn(CachedBackend(again, tmp_path / 'c.sqlite'))(
    pairs
  )
  assert (len(model.prompts), len(again.prompts)) == (4, 0)
  np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize(('rewards', 'chosen'), [
  ([[0, 1], [1, 1], [1, 1]], 1),  # The first of the best.
  ([[1, 0], [0, 1]], 0),  # A tie keeps the initial instruction.
  ([[0.1, 0.2, 0.3], [0.3, 0.2, 0.1]], 0),  # Whatever is rounded.
  ([[0.3, 0.2, 0.1], [0.1, 0.2, 0.3]], 0),
  ([[0, 0]], 0),
])  # fmt: skip
def test_the_first_of_the_best_candidates_is_chosen(rewards, chosen):
  assert prewrite.select([np.array(row) for row in rewards]) == chosen


@pytest.mark.parametrize('rewards', [[], [[]], [[1.0], [1.0, 0.0]]])
def test_candidates_that_cannot_be_compared_are_refused(rewards):
  with pytest.raises(ValueError, match='expected the same number'):
    prewrite.select([np.array(row) for row in rewards])


def test_a_reward_that_is_no_number_is_refused():
  with pytest.raises(ValueError, match='not finite'):
    prewrite.select([np.array([1.0]), np.array([np.nan])])


def test_no_pairs_have_no_rewards():
  assert prewrite.make_reward_fn(task_model())([]) == []


def test_an_instruction_fits_if_it_does_with_the_longest_example():
  model = ScriptedBackend(lambda _: '', prompt_limit=5)  # Words.
  fits = lambda text, *inputs: prewrite.fits(
    model, make_task(inputs), Instruction(text), 8
  )
  assert fits('Go there.', 'a', 'a b')  # With the label: five words.
  assert not fits('Go there.', 'a', 'a b c')
  assert not fits('Go over there.', 'a', 'a b')


def test_a_subsample_depends_on_task_and_seed_alone():
  task = make_task([str(i) for i in range(50)])
  draw = lambda seed: prewrite.subsample(task, 10, seed).examples
  assert draw(0) == draw(0) != draw(1)
  assert len(set(draw(0))) == 10
  assert prewrite.subsample(task, 0) is task
  assert prewrite.subsample(task, 99) is task


class Weigher(ScriptedBackend):
  """Also says how probable a label is: one half, then a quarter."""

  def score(self, requests, texts, given=''):
    self.asked = texts, given
    return [np.log([0.5, 0.25]) for _ in requests]


def test_perplexity_and_f1_are_added_and_perplexity_asks_no_answers():
  pairs = [(make_task(), SPELL)]
  model = Weigher(lambda _: 'terces')
  (alone,) = prewrite.make_reward_fn(model, 'perplexity')(pairs)
  np.testing.assert_allclose(alone, [-np.log(8) / 2] * 2)
  assert model.prompts == []
  assert model.asked == (['eno terces', 'owt terces'], '\n')
  (f1,) = prewrite.make_reward_fn(model, 'f1')(pairs)
  np.testing.assert_allclose(f1, [2 / 3] * 2)
  (both,) = prewrite.make_reward_fn(model, 'perplexity_f1')(pairs)
  np.testing.assert_allclose(both, alone + f1)


def test_perplexity_of_a_model_without_log_probs_is_refused_at_once():
  with pytest.raises(ValueError, match='cannot score'):
    prewrite.make_reward_fn(task_model(), 'perplexity')


@pytest.mark.parametrize('change', [
  {'samples': 0}, {'max_tokens': 0}, {'temperature': 0.0},
])  # fmt: skip
def test_settings_that_draw_nothing_are_refused(change):
  with pytest.raises(ValueError, match=next(iter(change))):
    prewrite.RewriteConfig(**change)
