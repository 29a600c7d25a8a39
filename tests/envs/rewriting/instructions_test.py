"""Rewriting instructions as an environment of one step."""

import collections
import math
import re
import threading
import time

import numpy as np
import pytest

from promptrl_jax.envs.rewriting import instructions as instruction_rewriting
from promptrl_jax.envs.rewriting.instruction_result import FLAGS
from promptrl_jax.envs.rewriting.instructions import (
  InstructionRewritingConfig as Config,
)
from promptrl_jax.llm.backend import BackendError
from promptrl_jax.prompts import meta
from promptrl_jax.strategies import prewrite
from promptrl_jax.tasks.instructions import (
  Example,
  Instruction,
  InstructionTask,
)
from promptrl_jax.testing.scripted import ScriptedBackend
from promptrl_jax.training.metrics import ROOMS

META = meta.make_meta('generic_b')


def make_task(text='Spell it.', words=('secret', 'abc', 'de', 'fgh')):
  return InstructionTask(
    Instruction(text), 'qa', '{instruction}\nInput: {input}',
    tuple(Example(word, (word[::-1],)) for word in words),
  )  # fmt: skip


TASK, OTHER = make_task(), make_task('Say it.', ('kl', 'mn', 'op', 'qr'))


def spell(request):
  """Backwards if it is told so, and up to three letters if that is said."""
  text, given = request.messages[0].content.split('\nInput: ')
  short = 'short' in text and len(given) > 3
  return given[::-1] if 'backwards' in text and not short else given


def make(answer=spell, reward_fn=None, allowed=None, **settings):
  model = ScriptedBackend(answer)
  env = instruction_rewriting.InstructionRewriting(
    reward_fn or prewrite.make_reward_fn(model), META, Config(**settings),
    *([allowed] if allowed else []),
  )  # fmt: skip
  return env, model


def test_the_metric_is_the_reward():
  env, _ = make(examples=0)
  texts = ['Spell backwards.', 'Spell short ones backwards.', 'Spell well.']
  result = env.submit([TASK] * 3, texts, seed=0).result()
  np.testing.assert_array_equal(result.rewards, [1.0, 0.75, 0.0])
  assert result.rewards.dtype == np.float32
  assert result.flags == result.dropped == ('', '', '')
  assert result.calls == 3 * 4
  assert result.instructions == tuple(texts)


@pytest.mark.parametrize('family', ['generic_a', 'generic_b', 'minicode'])
def test_the_rewriter_reads_the_instruction_and_no_input(family):
  env = instruction_rewriting.InstructionRewriting(
    lambda pairs: [], meta.make_meta(family)
  )
  tasks = [TASK, OTHER]
  for task, messages in zip(tasks, env.prompts(tasks), strict=True):
    assert task.instruction.text in messages[0][1]
    for example in task.examples:
      assert not re.search(rf'\b{example.input}\b', str(messages))
    # The same as what inference asks.
    request = prewrite.rewrite_request(
      meta.make_meta(family), task.instruction, 8
    )
    asked = tuple((m.role, m.content) for m in request.messages)
    assert messages == asked


def test_a_group_meets_the_same_examples_and_another_batch_meets_others():
  env, model = make(examples=2)
  rows = [TASK] * 3 + [OTHER] * 3
  texts = [f'Variant {k} of it.' for k in range(6)]
  met = []
  for seed in range(8):
    env.submit(rows, texts, seed).result()
    inputs = collections.defaultdict(set)
    for prompt in model.prompts[-12:]:
      text, given = prompt.split('\nInput: ')
      inputs[text].add(given)
    groups = [frozenset(inputs[text]) for text in texts]
    assert len(set(groups[:3])) == len(set(groups[3:])) == 1
    assert [len(group) for group in groups] == [2] * 6
    met.append(groups[0])
  assert len(set(met)) > 1


def test_equal_rewrites_are_answered_once_and_each_is_a_call():
  env, model = make(examples=0)
  result = env.submit([TASK] * 3, ['Spell backwards.'] * 3, 0).result()
  assert len(model.prompts) == 4
  assert result.calls == 12
  np.testing.assert_array_equal(result.rewards, [1, 1, 1])


def test_a_flagged_rewrite_asks_nobody_and_is_worth_nothing():
  env, model = make(
    allowed=lambda pair: len(pair[1].text) < 200, examples=0
  )  # fmt: skip
  texts = ['  ', 'Instruction:', 'Spell ' * 12, 'Spell backwards, and', 'x' * 9]
  texts += ['Spell it backwards, by ' + ', '.join(map(str, range(90)))]
  finished = [True, True, True, False, True, True]
  result = env.submit([TASK] * 6, texts, 0, finished).result()
  assert result.flags == (
    'empty', 'empty', 'repetition', 'overlong', 'repetition', 'no_room',
  )  # fmt: skip
  assert set(result.flags) <= set(FLAGS)
  np.testing.assert_array_equal(result.rewards, np.zeros(6))
  assert result.calls == 0 and not model.batches


def test_the_initial_instruction_may_be_said_again():
  task = make_task('Spell spell spell spell spell backwards.')
  env, _ = make(examples=0)
  result = env.submit([task], [task.instruction.text], 0).result()
  assert result.flags == ('',) and result.rewards[0] == 1.0


def test_a_rewrite_that_tells_an_answer_is_worth_nothing():
  answers = ('abcdefghi', 'de')
  task = make_task('Say ZYXWVUTSRQ.', (*answers, 'qrstuvwxyz'))
  env, _ = make(examples=1)
  texts = ['Spell backwards: IHGFEDCBA.', 'Spell ed backwards.']
  texts += ['Spell backwards, as zyxwvutsrq.']  # as it was found
  result = env.submit([task] * 3, texts, 0).result()
  assert result.flags == ('answer', '', '')
  assert result.rewards[0] == 0
  # Labels may be named.
  label = InstructionTask(
    Instruction('Sort it.'), 'classification', task.template,
    (Example('abc', ('a positive one',)),), ('a positive one', 'b'),
  )  # fmt: skip
  named = env.submit([label], ['Say a positive one or b.'], 0).result()
  assert named.flags == ('',)


def test_no_flag_is_better_than_a_reward_below_zero():
  def minus_length(pairs):
    return [np.array([-float(len(text.text))]) for _, text in pairs]

  env, _ = make(reward_fn=minus_length)
  texts = ['Spell.', 'Spell well.', '', 'Say it well, say.', '']
  rows = [TASK] * 3 + [OTHER] * 2
  result = env.submit(rows, texts, 0).result()
  np.testing.assert_array_equal(result.rewards, [-6, -11, -11, -17, -17])


# --- Failures of the system ---------------------------------------------------


def spoiled(kind):
  """A reward function that misbehaves on rewrites with the word "bad"."""

  def reward_fn(pairs):
    rows = []
    for _, text in pairs:
      if 'bad' in text.text and kind == 'raise':
        raise ZeroDivisionError('no words')
      value = {'nan': math.nan, 'inf': math.inf}.get(kind, 0.0)
      rows.append(np.array([1.0, value if 'bad' in text.text else 0.0]))
    return rows

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
  result = env.submit([TASK] * 3, ['Good one.', 'A bad one.', ''], 0).result()
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


def test_a_reward_function_that_hangs_does_not_hold_up_the_run():
  release = threading.Event()

  def hang(pairs):
    release.wait()
    return []

  env, _ = make(reward_fn=hang, timeout_s=0.2)
  pending = env.submit([TASK], ['Spell.'], 0)
  try:
    assert not pending.done()
    with pytest.raises(RuntimeError, match='HungError: no result for 0.2 s'):
      pending.result()
  finally:
    release.set()


def test_rows_beside_one_that_hangs_get_their_rewards():
  release = threading.Event()

  def hang(pairs):
    if any('bad' in text.text for _, text in pairs):
      release.wait()
    return [np.array([0.5]) for _ in pairs]

  env, _ = make(reward_fn=hang, timeout_s=1.0)
  texts = ['Good one.', 'A bad one.', 'Good two.', 'A bad one.']
  try:
    result = env.submit([TASK] * 4, texts, 0).result()
    np.testing.assert_array_equal(result.rewards, [0.5, np.nan, 0.5, np.nan])
    assert 'HungError: no result for' in result.dropped[1]
    assert result.metrics()['reward/dropped'] == 2
    # The next batch is not held up by what was left behind.
    later = env.submit([TASK], ['Good three.'], 1).result()
    np.testing.assert_array_equal(later.rewards, [0.5])
  finally:
    release.set()


def test_a_batch_that_was_only_late_is_kept():
  release, asked = threading.Event(), []

  def late(pairs):
    asked.append(len(pairs))
    if len(pairs) > 1:
      release.wait()
    elif len(asked) == 2:
      release.set()  # The whole batch comes while its first row is asked.
      time.sleep(0.5)
    return [np.array([float(len(pairs))]) for _ in pairs]

  env, _ = make(reward_fn=late, timeout_s=0.5)
  result = env.submit([TASK] * 3, ['One.', 'Two two.', 'Three.'], 0).result()
  np.testing.assert_array_equal(result.rewards, [3.0, 3.0, 3.0])
  assert asked == [3, 1]


def test_a_task_model_that_is_gone_is_an_error_and_no_zero():
  def gone(request):
    raise BackendError('no route to host')

  env, model = make(gone)
  with pytest.raises(BackendError, match='no route'):
    env.submit([TASK] * 2, ['Spell.', 'Say.'], 0).result()
  assert len(model.batches) == 1


def test_submit_returns_before_there_are_answers():
  release = threading.Event()

  def late(request):
    assert release.wait(60)
    return spell(request)

  env, _ = make(late, examples=0)
  first = env.submit([TASK], ['Spell backwards.'], 0)
  second = env.submit([TASK], ['Spell.'], 1)
  assert not first.done() and not second.done()
  release.set()
  assert first.result().rewards[0] == 1.0
  assert second.result().rewards[0] == 0.0
  assert second.result() is second.result()


# --- Settings -----------------------------------------------------------------


def test_metrics_have_names_that_the_writer_takes():
  env, _ = make()
  row = env.submit([TASK] * 2, ['Spell backwards.', ''], 0).result().metrics()
  assert {name.split('/')[0] for name in row} <= set(ROOMS)
  assert row['budget/task_model_calls'] == 4
  assert all(math.isfinite(value) for value in row.values())


@pytest.mark.parametrize(
  ('settings', 'message'),
  [
    ({'examples': -1}, 'examples=-1'),
    ({'timeout_s': 0.0}, 'timeout_s=0.0'),
    ({'timeout_s': math.nan}, 'timeout_s=nan'),
  ],
)
def test_settings_that_make_no_sense_are_refused(settings, message):
  with pytest.raises(ValueError, match=message):
    Config(**settings)


def test_lengths_must_agree():
  env, _ = make()
  with pytest.raises(ValueError, match='2 tasks, 1 rewrites'):
    env.submit([TASK] * 2, ['Spell.'], seed=0)
  with pytest.raises(ValueError, match='at least one row'):
    env.submit([], [], seed=0)
