"""The environment of one step that a rewriter is trained on."""

import dataclasses
import math
import re
import threading

import numpy as np
import pytest

from promptrl_jax.envs.editing.config import EditingConfig
from promptrl_jax.envs.editing.env import EditingEnv
from promptrl_jax.envs.rewriting.config import RewritingConfig
from promptrl_jax.envs.rewriting.env import RewritingEnv
from promptrl_jax.envs.rewriting.failed import failed_tasks
from promptrl_jax.envs.rewriting.result import FLAGS
from promptrl_jax.execution import ExecutionPool
from promptrl_jax.execution.program import ProgramResult
from promptrl_jax.llm.ask import AskConfig
from promptrl_jax.llm.backend import BackendError
from promptrl_jax.rewards.checking import Outcome
from promptrl_jax.strategies.prewrite import RewriteConfig
from promptrl_jax.tasks import splits
from promptrl_jax.testing import tiny
from promptrl_jax.testing.scripted import ScriptedBackend
from promptrl_jax.training.metrics import ROOMS
from promptrl_jax.training.rewriter.solvable import (
  solvable_tasks,
  solving_statements,
)
from promptrl_jax.types import Problem
from tests.settings_split import split

TASKS = tiny.tasks(4)
GOOD = 'Please write something to add {} to a number.'
VAGUE = 'Please do whatever is right with it.'


def write_program(request):
  """Adds the number that the statement names, if it says "add"."""
  prompt = request.messages[-1].content
  if 'for small' in prompt:  # right for 1 and 5, wrong for 10
    return '\n  return x + 2 if x < 9 else 0'
  found = re.search(r'add (\d+)', prompt)
  return f'\n  return x + {found.group(1)}' if found else '\n  return y'


def make(pool, coder=write_program, reward_fn=None, **settings):
  backend = ScriptedBackend(coder)
  protocol = settings.pop('protocol', 'visible1')
  ask, rest = split({'allow_keep': False, **settings})
  env = RewritingEnv(
    backend,
    pool,
    RewritingConfig(**rest),
    ask,
    protocol=protocol,
    reward_fn=reward_fn,
  )
  return env, backend


def test_tests_tell_the_reward(pool):
  env, _ = make(pool)
  result = env.rewards(
    [TASKS[2]] * 3, [GOOD.format(2), GOOD.format(3), VAGUE], seed=0
  )
  np.testing.assert_array_equal(result.rewards, [1.0, 0.0, 0.0])
  assert result.rewards.dtype == np.float32
  assert [v.status for v in result.outcomes] == ['passed', 'failed', 'error']
  assert result.flags == result.dropped == ('', '', '')
  assert result.replies[0] == 'def add(x):\n  return x + 2'


def test_all_tests_of_a_training_task_are_run(pool):
  env, _ = make(pool, solved_bonus=1.0, share_weight=0.6)
  half = 'Please add something for small numbers.'
  result = env.rewards([TASKS[2]] * 2, [half, GOOD.format(2)], seed=0)
  np.testing.assert_allclose(result.rewards, [0.6 * 2 / 3, 1.6], rtol=1e-6)
  assert len(result.outcomes[0].tests) == 3


@pytest.mark.parametrize('split', ['validation', 'test'])
def test_other_splits_are_refused(pool, split):
  env, backend = make(pool)
  with pytest.raises(ValueError, match=f"tiny/{split}/0 is of split '{split}'"):
    env.submit(tiny.tasks(1, split), [VAGUE], seed=0)
  assert not backend.batches


def test_the_coder_sees_visible_tests_only(pool):
  checker = dataclasses.replace(TASKS[0].checker, extra=1)
  task = dataclasses.replace(TASKS[0], checker=checker)
  for protocol, count in (('blind', 0), ('visible1', 1), ('visible_all', 2)):
    env, backend = make(pool, protocol=protocol)
    env.rewards([task], [GOOD.format(0)], seed=0)
    assert backend.prompts[0].count('assert') == count


def test_rows_of_one_task_share_the_sampler_seed_and_no_others_do(pool):
  env, backend = make(pool, first_temperature=0.8)
  rows = [TASKS[1]] * 3 + [TASKS[2]] * 3
  rewrites = [f'Variant number {k} of the task.' for k in range(6)]
  env.rewards(rows, rewrites, seed=5)
  env.rewards(rows[:1], rewrites[:1], seed=6)
  seeds = [r.seed for batch in backend.batches for r in batch]
  assert len(set(seeds[:3])) == len(set(seeds[3:6])) == 1
  assert len({seeds[0], seeds[3], seeds[6]}) == 3
  assert all(r.temperature == 0.8 for r in backend.batches[0])


def test_equal_rewrites_of_a_group_get_equal_rewards_for_one_answer(pool):
  count = iter(range(100))
  env, backend = make(
    pool,
    lambda r: f'\n  return x + {2 + next(count) % 2}',
    first_temperature=1.0,
  )
  result = env.rewards([TASKS[2]] * 4, [VAGUE] * 4, seed=0)
  assert len(backend.batches) == 1 and len(backend.batches[0]) == 1
  assert len(set(result.rewards)) == 1
  assert result.calls == 4  # each is a call of the budget
  assert (result.prompt_tokens, result.completion_tokens) == (40, 20)


def test_a_flagged_rewrite_is_worth_nothing_and_asks_nobody(pool):
  env, backend = make(pool, solved_bonus=1.0)
  rewrites = [
    f'{GOOD.format(2)} def add(x): return x + 2',
    f'{GOOD.format(2)} assert add(10) == 12',
    '',
    GOOD.format(2) + ' the list of' * 20,
    'a b of c',
  ]
  result = env.rewards([TASKS[2]] * 5, rewrites, seed=0)
  np.testing.assert_array_equal(result.rewards, np.zeros(5))
  assert result.flags == (
    'code',
    'assertion',
    'empty',
    'overlong',
    'unusable',
  )
  assert set(result.flags) <= set(FLAGS)
  assert result.calls == 0 and not backend.batches
  assert result.statements == ('',) * 5


def test_a_rewrite_that_was_cut_off_is_overlong(pool):
  env, _ = make(pool)
  texts = [GOOD.format(2)] * 2
  result = env.rewards([TASKS[2]] * 2, texts, 0, finished=[True, False])
  assert result.flags == ('', 'overlong')
  np.testing.assert_array_equal(result.rewards, [1, 0])


def test_saying_the_statement_again_is_allowed(pool):
  env, _ = make(pool)
  result = env.rewards(TASKS[2:3], [TASKS[2].statement], seed=0)
  assert result.flags == ('',) and result.rewards[0] == 1.0


def test_words_cost_but_no_reward_is_below_that_of_a_flag(pool):
  env, _ = make(pool, word_cost=0.05)
  result = env.rewards([TASKS[2]] * 2, [GOOD.format(2), VAGUE], seed=0)
  np.testing.assert_allclose(result.rewards, [1 - 9 * 0.05, 0.0], rtol=1e-6)


def test_chat_templates_flag_what_they_cannot_use(pool):
  env, _ = make(
    pool,
    lambda _: '```python\ndef add(x):\n  return x + 2\n```',
    template='chat',
  )
  usable = 'Rewritten task: Write a Python function add that adds 2 to x.'
  result = env.rewards(
    [TASKS[2]] * 2, [usable, 'I would add 2 to the argument.'], seed=0
  )
  assert result.flags == ('', 'unusable')
  assert result.rewards[0] == 1.0


# --- Failures of the system ---------------------------------------------------


def spoil(kind, release):
  """A reward function that misbehaves on rewrites with the word "bad"."""

  def reward_fn(task, text, outcome):
    assert task == TASKS[2] and isinstance(outcome, Outcome)
    if 'bad' not in text:
      return 2.0 * outcome.passed
    if kind == 'raise':
      raise ZeroDivisionError('no tests')
    if kind == 'hang':
      release.wait()
    return {'nan': math.nan, 'inf': math.inf, 'text': 'high'}.get(kind, 0.0)

  return reward_fn


@pytest.mark.parametrize(
  ('kind', 'reason'),
  [
    ('raise', 'ZeroDivisionError: no tests'),
    ('hang', 'for 0.5 s'),
    ('nan', 'the reward is nan'),
    ('inf', 'the reward is inf'),
    ('text', 'high'),
  ],
)
def test_a_reward_function_that_fails_drops_its_sample(pool, kind, reason):
  release = threading.Event()
  # The others wait long enough for a busy machine.
  timeout_s = 0.5 if kind == 'hang' else 60.0
  env, _ = make(pool, reward_fn=spoil(kind, release), timeout_s=timeout_s)
  texts = [GOOD.format(2), f'A bad one. {GOOD.format(2)}', VAGUE]
  try:
    result = env.rewards([TASKS[2]] * 3, texts, seed=0)
  finally:
    release.set()
  np.testing.assert_array_equal(result.rewards, [2.0, np.nan, 0.0])
  np.testing.assert_array_equal(result.valid, [True, False, True])
  assert reason in result.dropped[1]
  assert result.dropped[0] == result.dropped[2] == ''
  row = result.metrics()
  assert row['reward/dropped'] == 1
  assert row['reward/mean'] == 1.0  # of two samples, not of three
  assert row['reward/solved'] == 0.5


def test_when_nothing_gets_a_reward_the_run_is_told(pool):
  def reward_fn(task, text, outcome):
    raise OSError('disk full')

  env, _ = make(pool, reward_fn=reward_fn)
  with pytest.raises(RuntimeError, match='none of 2 rewrites.*disk full'):
    env.rewards(TASKS[:2], [VAGUE] * 2, seed=0)


def test_a_failure_of_the_pool_is_no_zero(pool):
  class Failing:
    def submit(self, programs):
      futures = pool.submit(programs)
      broken = ProgramResult('infra_error', None, (), message='worker lost')
      futures[0] = type(futures[0])()
      futures[0].set_result(broken)
      return futures

  env, _ = make(Failing())
  result = env.rewards([TASKS[2]] * 2, [GOOD.format(2)] * 2, seed=0)
  np.testing.assert_array_equal(result.rewards, [np.nan, 1.0])
  assert result.dropped[0] == 'RuntimeError: infra_error: worker lost'


def test_a_coder_that_is_gone_is_an_error(pool):
  def gone(request):
    raise BackendError('no route to host')

  env, _ = make(pool, gone)
  with pytest.raises(BackendError, match='no route'):
    env.rewards(TASKS[:1], [VAGUE], seed=0)


def test_a_program_that_never_ends_is_a_failure_of_the_rewrite(pool):
  env, _ = make(pool, lambda _: '\n  while True: pass')
  result = env.rewards(TASKS[:1], [VAGUE], seed=0)
  assert result.rewards[0] == 0.0 and result.dropped == ('',)
  assert result.outcomes[0].status == 'timeout'


# --- Asynchronous form --------------------------------------------------------


def test_submit_returns_while_programs_run():
  with ExecutionPool(workers=1) as pool:  # whose worker has yet to start
    env, backend = make(pool, lambda _: '\n  return x + 2')
    first = env.submit([TASKS[2]], [GOOD.format(2)], seed=0)
    assert not first.done()
    second = env.submit([TASKS[2]], [VAGUE], seed=0)  # before the first ends
    assert len(backend.batches) == 2
    assert second.result().rewards[0] == 1.0
    assert first.done()
    assert first.result().rewards[0] == 1.0
  assert second.result() is second.result()


def test_the_coder_is_asked_in_the_thread_of_the_caller(pool):
  threads = []

  def answer(request):
    threads.append(threading.current_thread())
    return write_program(request)

  env, _ = make(pool, answer)
  env.rewards(TASKS[:1], [VAGUE], seed=0)
  assert threads == [threading.current_thread()]


# --- Prompts and settings -----------------------------------------------------


def test_prompts_are_those_of_the_controller_environment(pool):
  coder, rewriter = (
    ScriptedBackend(write_program),
    ScriptedBackend(lambda _: ''),
  )
  both = EditingEnv(coder, rewriter, pool, EditingConfig(budget=2))
  both.reset([splits.reveal(TASKS[0], 'visible1')], [0])
  both.step(['semantic'])
  env, _ = make(pool)
  (messages,) = env.prompts(TASKS[:1])
  asked = rewriter.batches[0][0].messages
  assert messages == tuple((m.role, m.content) for m in asked)


def test_prompts_are_cut_to_what_the_rewriter_takes(pool):
  env, _ = make(pool)
  short = dataclasses.replace(TASKS[0], statement='word ' * 50 + 'end')
  (messages,) = env.prompts([short], lambda m: len(m[0][1].split()) < 20)
  assert messages[0][1].startswith('word') and 'end' in messages[0][1]
  assert 10 < len(messages[0][1].split()) < 20


def test_a_prompt_that_the_coder_cannot_take_is_a_failed_program(pool):
  env, backend = make(pool)
  backend._prompt_limit = 3
  with pytest.raises(ValueError, match='at least one row'):
    env.rewards([], [], seed=0)
  result = env.rewards(TASKS[:1], [VAGUE], seed=0)
  assert result.rewards[0] == 0.0 and result.outcomes[0].status == 'no_code'
  assert result.calls == 0


def test_metrics_have_names_that_the_writer_takes(pool):
  env, _ = make(pool)
  result = env.rewards([TASKS[2]] * 2, [GOOD.format(2), ''], seed=0)
  row = result.metrics()
  assert {name.split('/')[0] for name in row} <= set(ROOMS)
  assert row['reward/flagged'] == row['reward/flag_empty'] == 0.5
  assert row['budget/coder_calls'] == 1
  assert all(math.isfinite(value) for value in row.values())


@pytest.mark.parametrize(
  ('settings', 'message'),
  [
    ({'word_cost': -1.0}, 'word_cost=-1.0'),
    ({'share_weight': math.nan}, 'share_weight=nan'),
    ({'solved_bonus': 0.0}, 'every reward would be 0'),
    ({'timeout_s': 0.0}, 'timeout_s=0.0'),
  ],
)
def test_settings_that_make_no_sense_are_refused(settings, message):
  with pytest.raises(ValueError, match=message):
    RewritingConfig(**settings)


def test_unknown_ways_of_asking_are_refused(pool):
  with pytest.raises(ValueError, match="'xml'"):
    AskConfig(template='xml')
  with pytest.raises(ValueError, match="'all'"):
    make(pool, protocol='all')


def test_lengths_must_agree(pool):
  env, _ = make(pool)
  with pytest.raises(ValueError, match='2 tasks, 1 rewrites'):
    env.rewards(TASKS[:2], [VAGUE], seed=0)


def test_problems_hold_no_reward_test_of_other_splits():
  assert 'reward' in {f.name for f in dataclasses.fields(Problem)}
  assert splits.reveal(TASKS[0], 'visible1').reward is None
  assert not splits.reveal(TASKS[0], 'visible1').reward_tests


def test_failed_tasks_are_those_that_fail_as_they_are_worded(pool):
  env, backend = make(pool)
  worded = [
    dataclasses.replace(task, statement=statement)
    for task, statement in zip(
      TASKS,
      (GOOD.format(0), VAGUE, GOOD.format(9), GOOD.format(3)),
      strict=True,
    )
  ]
  failed = failed_tasks(env, worded)
  assert [task.task_id for task in failed] == ['tiny/train/1', 'tiny/train/2']
  assert 'NameError' in failed[0].feedback
  # One test is visible: nothing is said of the others.
  assert failed[1].feedback.startswith('TEST_PASS_MASK: (False,)\n')
  assert len(backend.batches) == 1


def test_the_rewriter_is_shown_what_failed(pool):
  env, _ = make(pool)
  (failed,) = failed_tasks(
    env, [dataclasses.replace(TASKS[1], statement=VAGUE)]
  )
  asked = env.prompt(failed)[0][1]
  assert 'NameError' in asked
  assert 'NameError' not in env.prompt(TASKS[1])[0][1]
  result = env.rewards([failed] * 2, [GOOD.format(1), VAGUE], seed=0)
  np.testing.assert_array_equal(result.rewards, [1.0, 0.0])


def test_rewrites_that_solve_are_those_that_pass_all_tests_without_a_flag(pool):
  env, backend = make(pool)
  # Solves task 1; repeats a test of it, which is flagged; solves no task.
  texts = (GOOD.format(1), f'{GOOD.format(1)} {TASKS[1].tests[0]}', VAGUE)
  rewriter = ScriptedBackend(lambda r: texts[r.seed - 5])
  drawn = RewriteConfig(samples=3, temperature=1.0, seed=5)
  seen = []
  solving, calls = solving_statements(
    env,
    rewriter,
    TASKS[:2],
    drawn,
    progress=lambda starts: seen.extend(starts) or starts,
  )
  assert solving == [[], [GOOD.format(1)]]
  assert seen == [0]
  assert calls == len(rewriter.prompts) + len(backend.prompts) > 6
  # What nobody wrote is tried, too: for task 0 nothing, for task 1 another one.
  other = f'{GOOD.format(1)} Thanks!'
  widened = {TASKS[0].task_id: (), TASKS[1].task_id: (VAGUE, other, other)}
  assert solving_statements(
    env, rewriter, TASKS[:2], drawn, lambda task, _: widened[task.task_id]
  ) == ([[], [other]], 6 + 2)
  assert solving_statements(
    env, rewriter, TASKS[:1], drawn, lambda task, _: ()
  ) == ([[]], 3)


def test_solvable_tasks_are_those_that_some_rewrite_solves(pool):
  env, backend = make(pool)
  rewriter = ScriptedBackend(lambda r: GOOD.format(1 + r.seed % 3))
  drawn = RewriteConfig(samples=3, temperature=1.0, seed=0)
  kept, calls = solvable_tasks(env, rewriter, TASKS, drawn)
  assert [task.task_id for task in kept] == [
    f'tiny/train/{i}' for i in (1, 2, 3)
  ]
  assert [len(batch) for batch in backend.batches] == [12]
  assert calls == 12 + 12
  with pytest.raises(ValueError, match='none of 1 tasks.*one of 3 rewrites'):
    solvable_tasks(env, rewriter, TASKS[:1], drawn)


class Likely(ScriptedBackend):
  """Scores each text by how often the statement names its last number."""

  def __init__(self):
    super().__init__(write_program)
    self.scored = []

  def score(self, requests, texts, given=''):
    self.scored += [(text, given) for text in texts]
    return [
      np.full(3, -1.0 / (1 + request.messages[-1].content.count(text[-1])))
      for request, text in zip(requests, texts, strict=True)
    ]


def likely(pool):
  backend = Likely()
  config = RewritingConfig(reward='likelihood', allow_keep=False)
  return RewritingEnv(backend, pool, config, protocol='blind'), backend


def test_a_likely_reference_is_a_reward_where_all_rewrites_fail(pool):
  env, backend = likely(pool)
  near = 'Please take 2 and do whatever is right with 2.'
  result = env.rewards([TASKS[2]] * 3, [GOOD.format(2), near, VAGUE], seed=0)
  # Mean log-probs of -1/2, -1/3 and -1, and a bonus for what is solved.
  np.testing.assert_allclose(result.rewards, [0.5, -1 / 3, -1.0], rtol=1e-6)
  assert [v.status for v in result.outcomes] == ['passed', 'error', 'error']
  # The program goes on behind its signature, right where the prompt ends.
  assert set(backend.scored) == {('\n  return x + 2', '')}


def test_references_of_other_splits_are_never_scored(pool):
  env, backend = likely(pool)
  tasks = tiny.tasks(2, 'validation')
  _, outcomes = env.ask(tasks, [GOOD.format(0), VAGUE])
  assert [outcome.passed for outcome in outcomes] == [True, False]
  assert not backend.scored


def test_a_task_without_a_reference_cannot_be_rewarded_by_it(pool):
  env, _ = likely(pool)
  task = dataclasses.replace(TASKS[0], reference='')
  with pytest.raises(ValueError, match='tiny/train/0 has no reference program'):
    env.rewards([task], [VAGUE], seed=0)
  with pytest.raises(ValueError, match='cannot score'):
    make(pool, reward='likelihood')


def test_a_metric_of_right_answers_is_refused_for_programs(pool):
  config = RewritingConfig(reward='perplexity', allow_keep=False)
  env = RewritingEnv(Likely(), pool, config)
  with pytest.raises(ValueError, match='tiny/train/0 is checked by unit tests'):
    env.rewards(TASKS[:1], [VAGUE], seed=0)
