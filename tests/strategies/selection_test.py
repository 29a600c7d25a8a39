"""Strategies that pick among several sampled programs, worked by hand.

The task is to add 2: `x + 2` and `2 + x` are right, `3 * x` and `3` pass the
visible test `add(1) == 3` and are wrong.
"""

import dataclasses
import json
import time

import numpy as np
import pytest

from promptrl_jax.envs.editing.config import EditingConfig
from promptrl_jax.evaluation.evaluate import evaluate
from promptrl_jax.evaluation.play import Entrant, LineUp, rivals
from promptrl_jax.execution import CallResult, ExpressionResult, SystemFailure
from promptrl_jax.llm.ask import AskConfig
from promptrl_jax.llm.backend import Completion
from promptrl_jax.llm.load import BackendConfig, load_backend
from promptrl_jax.parallel.mesh import make_data_mesh
from promptrl_jax.strategies import base
from promptrl_jax.strategies.codet import CodeTConfig, codet_with
from promptrl_jax.strategies.mbr_exec import MBRConfig, mbr_exec_with
from promptrl_jax.tasks.minicode.suite import SUITE
from promptrl_jax.testing import tiny
from promptrl_jax.testing.scripted import ScriptedBackend
from promptrl_jax.types import UnitTests

TASK = tiny.tasks(3, 'test')[2]
CHAT = AskConfig(template='chat')
PLAIN = AskConfig()


def asks_for_tests(request):
  return request.messages[0].content.startswith('You write tests')


def play(
  strategy,
  pool,
  bodies,
  budget,
  *,
  tests=(),
  config=PLAIN,
  seed=0,
  task=TASK,
):
  """Plays one problem; returns the run and the requests.

  Programs return `bodies` in turn and over again, replies with tests `tests`.
  """
  programs, replies = [], iter(tests)

  def answer(request):
    if asks_for_tests(request):
      return next(replies)
    programs.append(bodies[len(programs) % len(bodies)])
    body = f'\n  return {programs[-1]}'
    signature = task.signature
    return f'```python\n{signature}{body}\n```' if config is CHAT else body

  backend = ScriptedBackend(answer)
  is_name = isinstance(strategy, str)
  strategy = base.named(strategy) if is_name else base.TextStrategy(strategy)
  run = LineUp({'rewriter': backend, 'coder': backend}, pool, config).run(
    Entrant.of(strategy),
    [task],
    protocol='visible1',
    budget=budget,
    seed=seed,
  )
  assert [detail.error for detail in run.details] == ['']
  assert sum(row['cost'] for row in run.trace) == run.calls[0] <= budget
  return run, [request for batch in backend.batches for request in batch]


def submitted(run):
  """What the chosen program returns."""
  row = run.trace[-1]
  assert row['action'] == 'select'
  return row['submission'].split('return ')[1].strip()


# --- Best of n ----------------------------------------------------------------


def test_best_of_n_is_greedy_first(pool):
  bodies = ['x', '3 * x', 'x + 2']
  run, requests = play('best_of_n', pool, bodies, 4)
  assert run.trace[-1]['code'].endswith('3 * x') and not run.passed.any()
  assert [request.temperature for request in requests] == [0.0, 0.8]

  def guess(request):
    return f'\n  return x + {request.seed % 4}'

  tasks, config = tiny.tasks(6, 'test'), EditingConfig()
  other = rivals(config)['greedy_first'].make(0)
  models = [ScriptedBackend(guess), ScriptedBackend(guess)]
  (mine,) = evaluate(['best_of_n'], tasks, coder=models[0], pool=pool)
  (its,) = evaluate({'it': other}, tasks, coder=models[1], pool=pool)
  assert models[0].batches == models[1].batches
  np.testing.assert_array_equal(mine.calls, its.calls)
  np.testing.assert_array_equal(mine.passed, its.passed)
  assert 0 < mine.passed.sum() < 6


# --- Majority of outcomes -----------------------------------------------------


@pytest.mark.parametrize(
  ('bodies', 'budget', 'chosen', 'groups'),
  [
    # The majority of those that pass, though another one came first.
    (['3 * x', 'x + 2', '3', '2 + x'], 4, 'x + 2', [2, 1, 1]),
    # A tie goes to the earliest.
    (['3 * x', 'x + 2'], 2, '3 * x', [1, 1]),
    (['3 * x', 'x + 2', '2 + x', 'x * 3'], 4, '3 * x', [2, 2]),
    # What fails the visible test has no vote.
    (['x - 1', 'x - 1', 'x - 1', 'x + 2'], 4, 'x + 2', [1]),
    # Nothing passes: the first one is as good as the others.
    (['x - 1', 'x', 'x'], 3, 'x - 1', []),
    (['1 / 0', 'y', '[][x]'], 3, '1 / 0', []),
    # Exceptions are outcomes: these two raise the same on every new input.
    (['3 * x', '3 if x == 1 else 1 / 0', '3 // (x == 1)'], 3, '3 if x == 1 '
     'else 1 / 0', [2, 1]),
    # What is no plain data cannot be compared.
    (['3 if x == 1 else object()', 'x + 2'], 2, 'x + 2', [1]),
  ],
)  # fmt: skip
def test_the_largest_group_is_submitted(bodies, budget, chosen, groups, pool):
  run, requests = play('mbr_exec', pool, bodies, budget)
  assert submitted(run) == chosen
  assert run.trace[-1]['groups'] == groups
  assert run.calls.tolist() == [budget] == [len(requests)]
  assert bool(run.passed[0]) == (chosen == 'x + 2')
  assert [request.temperature for request in requests] == [0.0] + [0.8] * (
    budget - 1
  )


@pytest.mark.parametrize(('budget', 'calls'), [(1, 1), (2, 2), (4, 3), (8, 5)])
def test_a_lead_that_cannot_be_made_up_ends_the_sampling(budget, calls, pool):
  run, _ = play('mbr_exec', pool, ['x + 2', '2 + x'], budget)
  assert run.calls.tolist() == [calls] and run.passed.all()
  # While nothing passes, all calls are made.
  run, _ = play('mbr_exec', pool, ['x'], budget)
  assert run.calls.tolist() == [budget] and not run.passed.any()


@pytest.mark.parametrize(('enough', 'calls'), [(1, 2), (2, 3), (3, 5), (0, 6)])
def test_enough_programs_that_agree_end_it_earlier(enough, calls, pool):
  strategy = mbr_exec_with(MBRConfig(enough=enough))
  run, _ = play(strategy, pool, ['x', 'x + 2', '2 + x'], 8)
  assert run.calls.tolist() == [calls]
  assert submitted(run) == 'x + 2'


def test_the_number_of_inputs_is_the_setting(pool):
  run, _ = play(mbr_exec_with(MBRConfig(inputs=3)), pool, ['x + 2'], 2)
  assert len(run.trace[-1]['inputs']) == 3
  assert set(run.trace[-1]['inputs']) <= {f'add({x})' for x in range(-9, 9)}


def test_a_program_that_never_ends_on_new_inputs_is_bounded(pool):
  loops = '3 if x == 1 else [0 for i in iter(int, 1)]'
  started = time.monotonic()
  run, _ = play('mbr_exec', pool, [loops, 'x + 2', loops, '2 + x', 'x + 2'], 5)
  assert time.monotonic() - started < 30
  # Those that never end agree with one another, and there are two of them.
  assert run.trace[-1]['groups'] == [3, 2]
  assert submitted(run) == 'x + 2'


def test_without_a_new_input_it_is_best_of_n(pool):
  tests = ('assert add() == 3', 'assert add() + add() == 6')
  checker = UnitTests('add', 'def add():', tests)
  task = dataclasses.replace(TASK, checker=checker)
  run, _ = play('mbr_exec', pool, ['2', '3', '1'], 4, task=task)
  assert [row['action'] for row in run.trace] == ['execute'] * 2
  assert run.calls.tolist() == [2]


def test_the_same_seed_plays_the_same(pool):
  bodies = ['3 * x', 'x + 2', '3', '2 + x']
  runs = [play('mbr_exec', pool, bodies, 4, seed=s)[0] for s in (5, 5, 6)]
  assert runs[0].trace == runs[1].trace
  inputs = [run.trace[-1]['inputs'] for run in runs]
  assert inputs[0] == inputs[1] != inputs[2]
  json.dumps(runs[0].trace)  # as it is written


def test_problems_are_compared_in_one_call_of_the_pool(pool):
  batches = []

  class Counting:
    run = staticmethod(pool.run)

    def evaluate(self, calls):
      batches.append(len(calls))
      return pool.evaluate(calls)

  def answer(request):
    added = request.messages[-1].content.split('add ')[1][0]
    return f'\n  return x + {added}'

  run = LineUp({'coder': ScriptedBackend(answer)}, Counting()).run(
    Entrant.of(base.named('mbr_exec')),
    tiny.tasks(5, 'test'),
    protocol='visible1',
    budget=2,
    seed=0,
  )
  assert run.passed.all()
  # The second program of each problem is the first one again.
  assert [size for size in batches if size] == [5]


def test_a_lost_comparison_is_no_failure_of_the_program(pool):
  class Losing:
    run = staticmethod(pool.run)

    def evaluate(self, calls):
      lost = ExpressionResult('not_run')
      return [
        CallResult('infra_error', (lost,) * len(call.expressions))
        for call in calls
      ]

  with pytest.raises(SystemFailure, match='tiny/test/2'):
    play('mbr_exec', Losing(), ['x + 2'], 4)


# --- CodeT --------------------------------------------------------------------

GOOD = 'assert add(5) == 7\nassert add(0) == 2'


def test_the_consensus_of_programs_and_tests_is_submitted(pool):
  # x + 2 and 2 + x pass both tests: 2 * 2; 3 * x passes none: 1 * 0.
  run, requests = play(
    'codet', pool, ['3 * x', 'x + 2', '2 + x'], 4, tests=[GOOD], config=CHAT
  )
  assert submitted(run) == 'x + 2' and run.passed.all()
  assert run.trace[-1]['scores'] == [4, 0]
  assert run.calls.tolist() == [4]
  assert [asks_for_tests(r) for r in requests] == [True] + [False] * 3
  # The call that wrote the tests has a row of its own.
  assert [row['action'] for row in run.trace[:2]] == ['write_tests', 'execute']
  assert [row['cost'] for row in run.trace[:2]] == [1, 1]


def test_numbers_beat_a_lone_program_with_more_tests(pool):
  # 3 * x, twice, passes 2 of the 3 tests: 2 * 2; x + 2 passes one: 1 * 1.
  tests = 'assert add(0) == 0\nassert add(2) == 6\nassert add(5) == 7'
  run, _ = play(
    'codet', pool, ['x + 2', '3 * x', 'x * 3'], 4, tests=[tests], config=CHAT
  )
  assert submitted(run) == '3 * x'
  assert run.trace[-1]['scores'] == [4, 1]


def test_a_visible_test_counts_before_all_generated_ones(pool):
  # x - 1, twice, would score 4.
  tests = 'assert add(5) == 4\nassert add(0) == -1'
  run, _ = play(
    'codet', pool, ['x - 1', 'x - 1', 'x + 2'], 4, tests=[tests], config=CHAT
  )
  assert submitted(run) == 'x + 2' and run.trace[-1]['scores'] == [0]


@pytest.mark.parametrize(('budget', 'asked'), [(1, 0), (2, 0), (4, 1), (8, 2)])
def test_requests_for_tests_are_charged(budget, asked, pool):
  tests = [GOOD, 'assert add(7) == 9\nassert add(5) == 7']
  run, requests = play(
    'codet', pool, ['3', 'x + 2'], budget, tests=tests, config=CHAT
  )
  writing = [request for request in requests if asks_for_tests(request)]
  assert len(writing) == asked
  assert [r.temperature for r in writing] == [0.0, 0.8][:asked]
  if asked:
    assert run.calls.tolist() == [budget] == [len(requests)]
    expected = {1: 2, 2: 3}[asked]  # A test that is written twice is one.
    assert len(run.trace[-1]['tests']) == expected
    assert submitted(run) == 'x + 2'
  else:  # As best-of-n, it stops at what passes.
    assert run.calls.tolist() == [1]
  failing, _ = play('codet', pool, ['x'], budget, tests=tests, config=CHAT)
  assert failing.calls.tolist() == [budget]


@pytest.mark.parametrize(
  'reply', ['', 'I cannot write tests.', 'assert add(1) == 3', 'assert add(']
)
def test_without_a_test_the_visible_ones_decide(reply, pool):
  """No generated test is no evidence, least of all one that all have passed."""
  run, _ = play(
    'codet', pool, ['x', '3', 'x + 2'], 4, tests=[reply], config=CHAT
  )
  actions = [row['action'] for row in run.trace]
  assert actions == ['write_tests', 'execute', 'execute']
  assert run.calls.tolist() == [3] and not run.passed.any()


def test_malformed_tests_are_left_out_and_equal_ones_count_once(pool):
  reply = """1. assert add(5) == 7
assert add(5)==7  # again
assert add(1) == 3
assert add(4 == 6
assert __import__('os').getpid()
assert add(0) == 2
```"""
  run, _ = play('codet', pool, ['x + 2'], 4, tests=[reply], config=CHAT)
  assert run.trace[-1]['tests'] == ('assert add(5) == 7', 'assert add(0) == 2')
  assert run.trace[-1]['scores'] == [3 * 2]


def test_no_more_tests_are_kept_than_were_asked_for(pool):
  reply = '\n'.join(f'assert add({x}) == {x + 2}' for x in range(20, 30))
  run, requests = play(
    codet_with(CodeTConfig(test_share=0.5, tests_per_call=3)),
    pool,
    ['x + 2'],
    4,
    tests=[reply, reply],
    config=CHAT,
  )
  assert len(run.trace[-1]['tests']) == 6
  assert [asks_for_tests(r) for r in requests] == [True] * 2 + [False] * 2
  assert 'Write 3 assertions.' in requests[0].messages[-1].content


def test_the_last_test_of_a_reply_that_was_cut_is_left_out(pool):
  class Cut(ScriptedBackend):
    def complete(self, requests):
      return [
        Completion(c.text, 10, 5, 'length') for c in super().complete(requests)
      ]

  def answer(request):
    if asks_for_tests(request):
      return 'assert add(5) == 7\nassert add(100) == 10'
    return '```python\ndef add(x):\n  return x + 2\n```'

  backend = Cut(answer)
  run = LineUp({'coder': backend}, pool, CHAT).run(
    Entrant.of(base.named('codet')),
    [TASK],
    protocol='visible1',
    budget=4,
    seed=0,
  )
  assert run.trace[-1]['tests'] == ('assert add(5) == 7',)


def test_programs_that_crash_or_never_end_on_generated_tests(pool):
  loops = '3 if x == 1 else [0 for i in iter(int, 1)]'
  started = time.monotonic()
  run, _ = play(
    'codet', pool, [loops, '3 // (x == 1)', 'x + 2'], 4, tests=[GOOD],
    config=CHAT,
  )  # fmt: skip
  assert time.monotonic() - started < 30
  assert submitted(run) == 'x + 2'
  run, _ = play('codet', pool, ['1 / 0', 'y'], 4, tests=[GOOD], config=CHAT)
  assert submitted(run) == '1 / 0' and run.trace[-1]['scores'] == [0]


def test_a_model_that_follows_no_instruction_is_not_asked_for_tests(pool):
  backend = ScriptedBackend(lambda request: '\n  return x + 2')
  (cell,) = evaluate(['codet'], [TASK], coder=backend, pool=pool, budget=4)
  assert 'follow no instruction' in cell.details[0][0].error
  assert not backend.batches


# --- Settings, names, and a real model ----------------------------------------


@pytest.mark.parametrize(
  ('config', 'settings', 'message'),
  [
    (CodeTConfig, {'test_share': 1.0}, 'test_share=1.0'),
    (CodeTConfig, {'test_share': -0.1}, 'test_share=-0.1'),
    (CodeTConfig, {'tests_per_call': 0}, 'tests_per_call=0'),
    (MBRConfig, {'inputs': 0}, 'inputs=0'),
    (MBRConfig, {'enough': -1}, 'enough=-1'),
  ],
)
def test_settings_that_make_no_sense_are_refused(config, settings, message):
  with pytest.raises(ValueError, match=message):
    config(**settings)


def test_a_name_that_is_not_registered_is_refused(pool):
  with pytest.raises(ValueError, match=r'best_of_n.*codet.*mbr_exec'):
    evaluate(['majority'], [TASK], coder=ScriptedBackend(str), pool=pool)


@pytest.mark.slow
def test_the_embedded_coder_is_played(pool):
  config = BackendConfig(
    model='minicode_coder', prompt_tokens=64, new_tokens=80, slots=8
  )
  coder = load_backend(config, make_data_mesh(1))
  first, agreed = evaluate(
    ['best_of_n', 'mbr_exec'],
    SUITE.load('test')[:8],
    coder=coder,
    pool=pool,
    budget=4,
  )
  assert not any(d.error for c in (first, agreed) for d in c.details[0])
  assert first.calls.min() >= 1 and agreed.calls.max() <= 4
  # It goes on where best-of-n has stopped.
  assert (agreed.calls >= first.calls).all()
  assert agreed.calls.sum() > first.calls.sum()
  assert agreed.passed.sum() > 0
