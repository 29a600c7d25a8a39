"""One runner plays many strategies and batches what they ask for."""

import contextlib
import re
import signal
import time
from concurrent import futures

import pytest

from promptrl_jax.envs import runner as runner_lib
from promptrl_jax.envs import step_limit
from promptrl_jax.execution import Program
from promptrl_jax.llm.ask import AskConfig, coder_prompt, make_tools
from promptrl_jax.llm.attempt import Ask, Execute, ExecuteJobs, Meet
from promptrl_jax.llm.backend import BackendError, Message, Request
from promptrl_jax.llm.ledger import BudgetExceeded
from promptrl_jax.strategies.base import TextStrategy
from promptrl_jax.tasks import splits
from promptrl_jax.testing import tiny
from promptrl_jax.testing.scripted import ScriptedBackend
from tests.envs.failing import overspends, raises, submits_nothing

PROBLEMS = [splits.reveal(task, 'visible1') for task in tiny.tasks(6, 'test')]
CONFIG = AskConfig()


class CountingPool:
  """Passes on to a pool and counts its calls."""

  def __init__(self, pool):
    self._pool = pool
    self.batches = []

  def run(self, programs):
    self.batches.append(len(programs))
    return self._pool.run(programs)


def play(play_fns, pool, coder=None, rewriter=None, budget=4):
  """Plays one strategy per problem; returns the plays and the runner."""
  coder = coder or ScriptedBackend(lambda request: '\n  return x')
  rewriter = rewriter or ScriptedBackend(lambda request: ' Some other words.')
  backends = {'rewriter': rewriter, 'coder': coder}
  runner = runner_lib.Runner(backends, pool)
  tools = make_tools(CONFIG, backends)
  started = []
  for row, play_fn in enumerate(play_fns):
    (pair,) = TextStrategy(play_fn).start(
      [PROBLEMS[row]], tools, budget=budget, seed=0
    )
    started.append(pair)
  return runner.run(started, play_fns), runner


def ask_once(attempt, tools):
  code = yield from tools.write_program(attempt, coder_prompt(attempt))
  yield Execute(code)
  return code


def sleeps(attempt, tools):
  time.sleep(60)
  yield from ask_once(attempt, tools)


def rewrite_first(attempt, tools):
  yield Ask('rewriter', Request((Message('user', attempt.problem.statement),)))
  code = yield from tools.write_program(attempt, coder_prompt(attempt))
  yield Execute(code)
  return code


def test_plays_that_differ_share_one_call_of_each_model_and_of_the_pool(pool):
  counting = CountingPool(pool)
  coder = ScriptedBackend(lambda request: '\n  return x')
  rewriter = ScriptedBackend(lambda request: 'words')
  plays, _ = play([ask_once, rewrite_first] * 3, counting, coder, rewriter)
  assert [len(batch) for batch in rewriter.batches] == [3]
  assert [len(batch) for batch in coder.batches] == [6]
  assert counting.batches == [6]
  assert [p.attempt.calls for p in plays] == [1, 2] * 3
  assert all(p.submission and not p.attempt.error for p in plays)


def test_calls_tokens_and_the_trace_are_kept_per_attempt(pool):
  (first, second), runner = play([ask_once, rewrite_first], pool)
  assert (first.attempt.prompt_tokens, first.attempt.completion_tokens) == (
    10,
    5,
  )
  assert second.attempt.prompt_tokens == 20
  assert runner.ledger.roles['coder'].calls == 2
  assert runner.ledger.roles['rewriter'].calls == 1
  (row,) = second.attempt.trace
  assert [ask['role'] for ask in row['sent']] == ['rewriter', 'coder']
  assert row['sent'][0]['messages'][0]['content'] == PROBLEMS[1].statement
  assert row['cost'] == 2 and row['code'] == second.submission


def asks_and_submits(attempt, tools):
  return (yield from tools.write_program(attempt, coder_prompt(attempt)))


def test_the_traces_hold_every_call_and_completion_that_the_meter_has(pool):
  plays, runner = play([ask_once, rewrite_first, asks_and_submits], pool)
  rows = [row for played in plays for row in played.attempt.trace]
  assert [row['action'] for row in rows] == ['execute', 'execute', 'ask']
  spent = runner.ledger.spent
  assert spent.calls == sum(row['cost'] for row in rows) == 4
  answers = [answer for row in rows for answer in row['answers']]
  assert spent.prompt_tokens == sum(a['prompt_tokens'] for a in answers) == 40
  assert spent.completion_tokens == sum(a['completion_tokens'] for a in answers)
  assert [[a['text'] for a in row['answers']] for row in rows] == [
    ['\n  return x'],
    [' Some other words.', '\n  return x'],
    ['\n  return x'],
  ]
  assert all(ask['scope'] == 'test' for row in rows for ask in row['sent'])


def loops(attempt, tools):
  while True:
    yield Execute('def f(): ...')


def submits_a_number(attempt, tools):
  yield Execute('def f(): ...')
  return 3


def asks_a_stranger(attempt, tools):
  yield Ask('critic', Request((Message('user', 'Well?'),)))
  return 'def f(): ...'


def yields_text(attempt, tools):
  yield 'please'
  return 'def f(): ...'


@pytest.mark.parametrize(
  ('bad', 'message'),
  [
    (raises, 'KeyError.*lost my notes'),
    (loops, 'loops'),
    (overspends, 'budget of 4'),
    (submits_nothing, 'submitted nothing'),
    (submits_a_number, 'submitted a int'),
    (asks_a_stranger, "role 'critic': expected one of rewriter, coder"),
    (yields_text, "yielded 'please'"),
  ],
  ids=lambda case: getattr(case, '__name__', ''),
)
def test_a_strategy_that_fails_is_told_apart_and_the_others_finish(
  bad, message, pool, monkeypatch
):
  monkeypatch.setattr(runner_lib, 'MOST_REQUESTS', 20)
  (failed, fine), _ = play([bad, ask_once], pool)
  assert failed.submission == ''
  assert re.search(message, failed.attempt.error)
  assert failed.attempt.calls <= 4
  assert fine.submission and not fine.attempt.error


def test_a_strategy_that_asks_for_nothing_any_more_is_ended(pool, monkeypatch):
  def computes(attempt, tools):
    yield from ask_once(attempt, tools)
    while True:
      pass

  def holds_on(attempt, tools):
    code = yield from ask_once(attempt, tools)
    while True:
      try:
        time.sleep(60)
      except RuntimeError:
        return code

  def goes_on(attempt, tools):
    yield from ask_once(attempt, tools)
    while True:
      with contextlib.suppress(Exception):
        time.sleep(60)

  monkeypatch.setattr(step_limit, 'LIMIT_S', 0.2)
  monkeypatch.setattr(step_limit, '_AGAIN_S', 0.5)
  started = time.monotonic()
  done, _ = play([ask_once, computes, sleeps, holds_on, goes_on], pool)
  assert time.monotonic() - started < 30
  looped = 'no request within 0.2 s: the strategy loops'
  ended, aborted = f'StepTimeout: {looped}', f'StepAborted: {looped}'
  assert [a.attempt.error for a in done] == ['', ended, ended, '', aborted]
  submitted = [bool(a.submission) for a in done]
  assert submitted == [True, False, False, True, False]
  time.sleep(0.3)  # No alarm is left.
  assert signal.getsignal(signal.SIGALRM) is signal.SIG_DFL


def test_a_strategy_that_loops_on_all_problems_is_given_ever_less_time(
  pool, monkeypatch
):
  def hesitates(attempt, tools):
    time.sleep(0.2)
    return (yield from ask_once(attempt, tools))

  monkeypatch.setattr(step_limit, 'LIMIT_S', 1.0)
  done, _ = play([*[sleeps] * 5, hesitates], pool)
  limits = [
    re.search(r'within (\S+) s', a.attempt.error).group(1) for a in done[:5]
  ]
  assert limits == ['1', '0.5', '0.25', '0.125', '0.1']
  assert done[5].submission and not done[5].attempt.error


def test_the_limit_of_a_strategy_ends_those_that_it_plays_itself(
  pool, monkeypatch
):
  def plays_others(attempt, tools):
    play([sleeps] * 5, pool)
    return (yield from ask_once(attempt, tools))

  monkeypatch.setattr(step_limit, 'LIMIT_S', 0.2)
  done, _ = play([plays_others, ask_once], pool)
  assert done[0].attempt.error.startswith('StepTimeout: no request within')
  assert done[1].submission and not done[1].attempt.error


def test_an_alarm_that_comes_when_a_step_has_ended_is_ignored():
  limit = step_limit.StepLimits().of('strategy')
  with limit:
    pass
  limit._end(signal.SIGALRM, None)
  assert not limit.was_reached


def test_an_alarm_of_the_caller_stays(pool):
  signal.setitimer(signal.ITIMER_REAL, 1000.0)
  try:
    (done,), _ = play([ask_once], pool)
    left, _ = signal.getitimer(signal.ITIMER_REAL)
  finally:
    signal.setitimer(signal.ITIMER_REAL, 0)
  assert done.submission and 900 < left <= 1000


def test_a_runner_in_another_thread_plays_without_the_limit(pool):
  with futures.ThreadPoolExecutor(1) as thread:
    (done,), _ = thread.submit(play, [ask_once], pool).result()
  assert done.submission and not done.attempt.error


def test_a_strategy_may_hand_in_its_best_when_the_budget_is_spent(pool):
  def frugal(attempt, tools):
    code = ''
    try:
      while True:
        code = yield from tools.write_program(
          attempt, coder_prompt(attempt), resample=True
        )
    except BudgetExceeded:
      return code

  (played,), _ = play([frugal], pool, budget=2)
  assert played.submission and played.attempt.calls == 2


def test_a_backend_that_cannot_be_reached_is_no_failure_of_a_strategy(pool):
  def dead(request):
    raise BackendError('no answer')

  with pytest.raises(BackendError):
    play([ask_once], pool, coder=ScriptedBackend(dead))


def test_plays_that_meet_wait_until_the_others_ask_for_nothing(pool):
  order = []

  def quick(attempt, tools):
    yield Meet()
    order.append(('met', attempt.row))
    return (yield from ask_once(attempt, tools))

  def slow(attempt, tools):
    for _ in range(2):
      code = yield from ask_once(attempt, tools)
    order.append(('ready', attempt.row))
    yield Meet()
    order.append(('met', attempt.row))
    return code

  plays, _ = play([quick, slow, raises], pool)
  assert order[0][0] == 'ready' and len(order) == 3
  assert [bool(p.submission) for p in plays] == [True, True, False]


def test_a_strategy_runs_programs_on_tests_of_its_own(pool):
  results = []

  def own(attempt, tools):
    code = 'def add(x):\n  return x + 1'
    jobs = tuple(
      Program(code, (test,), entry_point='add', isolate_tests=True)
      for test in ('assert add(1) == 2', 'assert add(1) == 3')
    )
    results.extend((yield ExecuteJobs(jobs)))
    return code

  (played,), _ = play([own], pool)
  assert [result.status for result in results] == ['passed', 'failed']
  assert (played.attempt.calls, played.attempt.attempts) == (0, 0)

  def wrong(attempt, tools):
    yield ExecuteJobs(('def add(x): ...',))

  (failed,), _ = play([wrong], pool)
  assert 'ExecuteJobs of Program and Call' in failed.attempt.error
