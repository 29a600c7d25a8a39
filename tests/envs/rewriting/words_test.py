"""Rewriting questions and instructions as an environment of one step."""

import collections
import dataclasses
import math
import re
import threading
import time

import numpy as np
import pytest

from promptrl_jax.envs.rewriting.config import RewritingConfig
from promptrl_jax.envs.rewriting.env import RewritingEnv
from promptrl_jax.envs.rewriting.result import FLAGS
from promptrl_jax.llm.backend import BackendError
from promptrl_jax.prompts import meta
from promptrl_jax.prompts.templates import PromptTooLongError
from promptrl_jax.tasks import instructions
from promptrl_jax.testing import tiny
from promptrl_jax.testing.scripted import ScriptedBackend
from promptrl_jax.training.metrics import ROOMS
from promptrl_jax.types import Answers, Example, Task
from tests.settings_split import split


def make_task(text='Spell it.', words=('secret', 'abc', 'de', 'fgh')):
  return instructions.make_task(
    text,
    'qa',
    '{instruction}\nInput: {input}',
    [Example(word, (word[::-1],)) for word in words],
    split='train',
  )


TASK, OTHER = make_task(), make_task('Say it.', ('kl', 'mn', 'op', 'qr'))
QUESTION = Task('q/1', 'Capital of Peru?', Answers(('Lima',)), 'train')


def spell(request):
  """Backwards if it is told so, and up to three letters if that is said."""
  text, given = request.messages[0].content.split('\nInput: ')
  short = 'short' in text and len(given) > 3
  return given[::-1] if 'backwards' in text and not short else given


def make(answer=spell, reward_fn=None, prompt_limit=10_000, **settings):
  model = ScriptedBackend(answer, prompt_limit)
  defaults = {'reward': 'score', 'background': True, 'allow_keep': False}
  ask, rest = split(defaults | settings)
  env = RewritingEnv(
    model, None, RewritingConfig(**rest), ask, reward_fn=reward_fn
  )
  return env, model


@pytest.mark.parametrize('background', [True, False])
def test_the_metric_is_the_reward(background):
  env, _ = make(background=background)
  texts = ['Spell backwards.', 'Spell short ones backwards.', 'Spell well.']
  result = env.rewards([TASK] * 3, texts, seed=0)
  np.testing.assert_array_equal(result.rewards, [1.0, 0.75, 0.0])
  assert result.rewards.dtype == np.float32
  assert result.flags == result.dropped == ('', '', '')
  assert result.calls == 3 * 4
  assert result.statements == tuple(texts)
  assert result.replies[0] == ('terces', 'cba', 'ed', 'hgf')
  assert [outcome.passed for outcome in result.outcomes] == [True, False, False]


def test_a_question_is_asked_as_it_is_rewritten():
  env, model = make(
    lambda r: 'Lima' if 'country' in r.messages[0].content else 'x'
  )
  texts = ['Capital of the country Peru?', 'Where is Peru?']
  result = env.rewards([QUESTION] * 2, texts, seed=0)
  np.testing.assert_array_equal(result.rewards, [1.0, 0.0])
  assert model.prompts == texts
  assert result.calls == 2 and result.replies == ('Lima', 'x')


def test_tasks_with_other_checkers_share_a_batch(pool):
  model = ScriptedBackend(
    lambda r: (
      '\n  return x + 2' if 'def add' in r.messages[-1].content else 'Lima'
    )
  )
  env = RewritingEnv(model, pool)
  code, rewrite = (
    tiny.tasks(3)[2],
    'Please write something to add 2 to a number.',
  )
  result = env.rewards([code, QUESTION], [rewrite, 'Which city is it?'], seed=0)
  np.testing.assert_array_equal(result.rewards, [1.0, 1.0])
  assert len(model.batches) == 1


def test_only_training_tasks_are_rewarded():
  env, model = make()
  task = dataclasses.replace(QUESTION, split='test')
  with pytest.raises(ValueError, match="q/1 is of split 'test'"):
    env.submit([task], ['Where is Peru?'], seed=0)
  assert not model.batches


@pytest.mark.parametrize('family', ['generic_a', 'generic_b', 'minicode'])
def test_the_rewriter_reads_the_instruction_and_no_input(family):
  env, _ = make(meta=meta.MetaConfig(family))
  tasks = [TASK, OTHER]
  for task, messages in zip(tasks, env.prompts(tasks), strict=True):
    assert task.statement in messages[0][1]
    for example in task.checker.examples:
      assert not re.search(rf'\b{example.input}\b', str(messages))


def test_a_statement_that_the_rewriter_cannot_take_is_refused():
  env, _ = make()
  with pytest.raises(PromptTooLongError, match=r"no room for 'Spell it\.'"):
    env.prompt(TASK, lambda messages: False)


def test_an_empty_rewrite_may_keep_the_statement():
  env, _ = make(allow_keep=True)
  task = make_task('Spell backwards.')
  assert env.rewards([task], [' '], 0).rewards[0] == 1.0


def test_a_group_meets_the_same_examples_and_another_batch_meets_others():
  env, model = make(examples=2)
  rows = [TASK] * 3 + [OTHER] * 3
  texts = [f'Variant {k} of it.' for k in range(6)]
  met = []
  for seed in range(8):
    env.rewards(rows, texts, seed)
    inputs = collections.defaultdict(set)
    for prompt in model.prompts[-12:]:
      text, given = prompt.split('\nInput: ')
      inputs[text].add(given)
    groups = [frozenset(inputs[text]) for text in texts]
    assert len(set(groups[:3])) == len(set(groups[3:])) == 1
    assert [len(group) for group in groups] == [2] * 6
    met.append(groups[0])
  assert len(set(met)) > 1


def test_rewrites_of_one_task_share_the_sampler_seed_of_each_example():
  env, model = make(first_temperature=0.7, examples=2)
  env.rewards([TASK, TASK, OTHER], ['One a.', 'Two b.', 'Three c.'], 3)
  seeds = [request.seed for request in model.batches[0]]
  assert seeds[:2] == seeds[2:4]
  assert len({*seeds[:2], *seeds[4:]}) == 4


def test_examples_of_equal_input_are_all_asked():
  twice = make_task('Spell both.', ('ab', 'ab'))
  env, _ = make(first_temperature=0.7)
  first, second = env.requests(twice, 'Spell.')
  assert first == second  # The same question has the same answer.


def test_equal_rewrites_are_answered_once_and_each_is_a_call():
  env, model = make()
  result = env.rewards([TASK] * 3, ['Spell backwards.'] * 3, 0)
  assert len(model.prompts) == 4
  assert result.calls == 12
  np.testing.assert_array_equal(result.rewards, [1, 1, 1])


def test_a_flagged_rewrite_asks_nobody_and_is_worth_nothing():
  env, model = make(prompt_limit=80)
  texts = ['  ', 'Instruction:', 'Spell ' * 12, 'Spell backwards, and', 'x' * 9]
  texts += ['Spell it backwards, by ' + ', '.join(map(str, range(90)))]
  finished = [True, True, True, False, True, True]
  result = env.rewards([TASK] * 6, texts, 0, finished)
  assert result.flags == (
    'empty',
    'empty',
    'repetition',
    'overlong',
    'repetition',
    'no_room',
  )
  assert set(result.flags) <= set(FLAGS)
  np.testing.assert_array_equal(result.rewards, np.zeros(6))
  assert result.calls == 0 and not model.batches


def test_the_initial_instruction_may_be_said_again():
  task = make_task('Spell spell spell spell spell backwards.')
  env, _ = make()
  result = env.rewards([task], [task.statement], 0)
  assert result.flags == ('',) and result.rewards[0] == 1.0


def test_a_rewrite_that_tells_an_answer_is_worth_nothing():
  answers = ('abcdefghi', 'de')
  task = make_task('Say ZYXWVUTSRQ.', (*answers, 'qrstuvwxyz'))
  env, _ = make(examples=1)
  texts = ['Spell backwards: IHGFEDCBA.', 'Spell ed backwards.']
  texts += ['Spell backwards, as zyxwvutsrq.']  # as it was found
  result = env.rewards([task] * 3, texts, 0)
  assert result.flags == ('answer', '', '')
  assert result.rewards[0] == 0
  # Labels may be named.
  label = instructions.make_task(
    'Sort it.',
    'classification',
    task.checker.template,
    [Example('abc', ('a positive one',))],
    ('a positive one', 'b'),
    'train',
  )
  named = env.rewards([label], ['Say a positive one or b.'], 0)
  assert named.flags == ('',)


def test_no_flag_is_better_than_a_reward_below_zero():
  env, _ = make(reward_fn=lambda task, text, outcome: -float(len(text)))
  texts = ['Spell.', 'Spell well.', '', 'Say it well, say.', '']
  rows = [TASK] * 3 + [OTHER] * 2
  result = env.rewards(rows, texts, 0)
  np.testing.assert_array_equal(result.rewards, [-6, -11, -11, -17, -17])


# --- Rewards by name ----------------------------------------------------------


class Weigher(ScriptedBackend):
  """Also says how probable a label is: one half, then a quarter."""

  def score(self, requests, texts, given=''):
    self.asked = texts, given
    return [np.log([0.5, 0.25]) for _ in requests]


def test_perplexity_and_f1_are_added_and_perplexity_asks_no_answers():
  task = make_task('Spell it.', ('secret one', 'secret two'))

  def rewards(reward):
    model = Weigher(lambda _: 'terces')
    env = RewritingEnv(model, None, RewritingConfig(reward=reward))
    return env.rewards([task], ['Spell it well.'], 0).rewards, model

  alone, model = rewards('perplexity')
  np.testing.assert_allclose(alone, [-np.log(8) / 2], rtol=1e-6)
  assert model.prompts == []
  assert model.asked == (['eno terces', 'owt terces'], '\n')
  f1, _ = rewards('f1')
  np.testing.assert_allclose(f1, [2 / 3], rtol=1e-6)
  both, _ = rewards('perplexity_f1')
  np.testing.assert_allclose(both, alone + f1, rtol=1e-6)


def test_perplexity_of_a_model_without_log_probs_is_refused_at_once():
  with pytest.raises(ValueError, match='cannot score'):
    make(reward='perplexity')


# --- Failures of the system ---------------------------------------------------


def spoiled(kind):
  """A reward function that misbehaves on rewrites with the word "bad"."""

  def reward_fn(task, text, outcome):
    if 'bad' in text and kind == 'raise':
      raise ZeroDivisionError('no words')
    value = {'nan': math.nan, 'inf': math.inf}.get(kind, 0.0)
    return value if 'bad' in text else 0.5

  return reward_fn


@pytest.mark.parametrize(
  ('kind', 'reason'),
  [
    ('raise', 'ZeroDivisionError: no words'),
    ('nan', 'the reward is nan'),
    ('inf', 'the reward is inf'),
  ],
)
def test_a_row_without_a_reward_is_dropped_and_counted(kind, reason):
  env, _ = make(reward_fn=spoiled(kind))
  result = env.rewards([TASK] * 3, ['Good one.', 'A bad one.', ''], 0)
  np.testing.assert_array_equal(result.rewards, [0.5, np.nan, 0.0])
  assert reason in result.dropped[1]
  assert result.dropped[0] == result.dropped[2] == ''
  row = result.metrics()
  assert row['reward/dropped'] == 1
  assert row['reward/mean'] == 0.25  # of two rows, not of three
  assert (
    row['reward/flag_empty'] == row['reward/flagged'] == pytest.approx(1 / 3)
  )


def test_when_nothing_gets_a_reward_the_run_is_told():
  env, _ = make(reward_fn=spoiled('raise'))
  pending = env.submit([TASK] * 2, ['A bad one.', 'A bad two.'], 0)
  with pytest.raises(RuntimeError, match='none of 2 rewrites.*no words'):
    pending.result()


@pytest.mark.parametrize('hanging', ['model', 'reward'])
def test_what_hangs_does_not_hold_up_the_run(hanging):
  release = threading.Event()

  def hang(*unused):
    release.wait()
    return 'x' if hanging == 'model' else 0.0

  env, _ = make(
    hang if hanging == 'model' else spell,
    hang if hanging == 'reward' else None,
    timeout_s=0.2,
  )
  pending = env.submit([TASK], ['Spell.'], 0)
  try:
    assert not pending.done()
    with pytest.raises(RuntimeError, match=r'no result.* for 0\.2 s'):
      pending.result()
  finally:
    release.set()


def test_a_model_that_raises_for_one_row_does_not_spoil_the_others():
  def answer(request):
    if 'bad' in request.messages[0].content:
      raise ValueError('no such prompt')
    return spell(request)

  env, _ = make(answer)
  texts = ['Spell backwards.', 'A bad one.', 'Spell.']
  result = env.rewards([TASK] * 3, texts, 0)
  np.testing.assert_array_equal(result.rewards, [1.0, np.nan, 0.0])
  assert result.dropped[1] == 'ValueError: no such prompt'


def test_rows_beside_one_that_hangs_get_their_rewards():
  release = threading.Event()

  def answer(request):
    if 'bad' in request.messages[0].content:
      release.wait()
    return spell(request)

  env, _ = make(answer, timeout_s=1.0)
  texts = ['Good backwards.', 'A bad one.', 'Good two.', 'A bad one.']
  try:
    result = env.rewards([TASK] * 4, texts, 0)
    np.testing.assert_array_equal(result.rewards, [1.0, np.nan, 0.0, np.nan])
    assert 'HungError: no result for' in result.dropped[1]
    assert result.metrics()['reward/dropped'] == 2
    # The next batch is not held up by what was left behind.
    later = env.rewards([TASK], ['Three backwards.'], 1)
    np.testing.assert_array_equal(later.rewards, [1.0])
  finally:
    release.set()


def test_a_batch_that_was_only_late_is_kept():
  release, asked = threading.Event(), []

  class Late(ScriptedBackend):
    def complete(self, requests):
      asked.append(len(requests))
      if len(requests) > 1:
        release.wait()
      elif len(asked) == 2:
        release.set()  # The whole batch comes while its first row is asked.
        time.sleep(0.5)
      return super().complete(requests)

  env = RewritingEnv(
    Late(spell),
    None,
    RewritingConfig(reward='score', background=True, examples=1, timeout_s=0.5),
  )
  texts = ['One backwards.', 'Two two.', 'Three.']
  result = env.rewards([TASK] * 3, texts, 0)
  np.testing.assert_array_equal(result.rewards, [1.0, 0.0, 0.0])
  assert asked == [3, 1]


@pytest.mark.parametrize('background', [True, False])
def test_a_task_model_that_is_gone_is_an_error_and_no_zero(background):
  def gone(request):
    raise BackendError('no route to host')

  env, model = make(gone, background=background)
  with pytest.raises(BackendError, match='no route'):
    env.submit([TASK] * 2, ['Spell.', 'Say.'], 0).result()
  assert len(model.batches) == 1


def test_submit_returns_before_there_are_answers():
  release = threading.Event()

  def late(request):
    assert release.wait(60)
    return spell(request)

  env, _ = make(late)
  first = env.submit([TASK], ['Spell backwards.'], 0)
  second = env.submit([TASK], ['Spell.'], 1)
  assert not first.done() and not second.done()
  release.set()
  assert first.result().rewards[0] == 1.0
  assert second.result().rewards[0] == 0.0
  assert second.result() is second.result()
  assert first.done()


# --- Evaluation and settings --------------------------------------------------


def test_evaluation_asks_about_any_split_in_one_call():
  env, model = make()
  tasks = [dataclasses.replace(t, split='test') for t in (TASK, QUESTION)]
  model._answer_fn = lambda r: 'Lima'
  _, outcomes = env.ask(tasks, ['Spell backwards.', 'Where?'])
  assert [outcome.score for outcome in outcomes] == [0.0, 1.0]
  assert len(model.batches) == 1 and len(model.prompts) == 5
  assert outcomes[0].reply == ('Lima',) * 4


def test_a_statement_fits_if_it_does_with_the_longest_example():
  env, _ = make(prompt_limit=5)  # Words.
  fits = lambda text, *inputs: env.fits(make_task(words=inputs), text)
  assert fits('Go there.', 'a', 'a b')  # With the label: five words.
  assert not fits('Go there.', 'a', 'a b c')
  assert not fits('Go over there.', 'a', 'a b')


def test_metrics_have_names_that_the_writer_takes():
  env, _ = make()
  row = env.rewards([TASK] * 2, ['Spell backwards.', ''], 0).metrics()
  assert {name.split('/')[0] for name in row} <= set(ROOMS)
  assert row['budget/coder_calls'] == 4
  assert all(math.isfinite(value) for value in row.values())


@pytest.mark.parametrize(
  ('settings', 'message'),
  [
    ({'examples': -1}, 'examples=-1'),
    ({'timeout_s': 0.0}, 'timeout_s=0.0'),
    ({'timeout_s': math.nan}, 'timeout_s=nan'),
    ({'reward': 'bleu'}, "reward 'bleu': expected one of solved, score"),
    ({'reward': 'f1', 'word_cost': 0.1}, "an option of the reward 'solved'"),
    ({'reward_options': {'n': 1}}, "'solved' has no option 'n'"),
  ],
)
def test_settings_that_make_no_sense_are_refused(settings, message):
  with pytest.raises(ValueError, match=message):
    RewritingConfig(**settings)


def test_lengths_must_agree():
  env, _ = make()
  with pytest.raises(ValueError, match='2 tasks, 1 rewrites'):
    env.submit([TASK] * 2, ['Spell.'], seed=0)
  with pytest.raises(ValueError, match='at least one row'):
    env.submit([], [], seed=0)
