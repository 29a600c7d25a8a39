"""A verifier chooses among all programs that pass the visible tests.

The task is to add 2: `3 * x` and `3` pass the visible test `add(1) == 3` and
are wrong, `x + 2` and `2 + x` are right and agree.
"""

import numpy as np
import pytest

from promptrl_jax.envs.editing.config import EditingConfig
from promptrl_jax.evaluation import verifying
from promptrl_jax.evaluation.play import Entrant, LineUp
from promptrl_jax.llm.attempt import Attempt, Execute
from promptrl_jax.llm.backend import Completion, Confidence
from promptrl_jax.llm.cache import CachedBackend
from promptrl_jax.llm.ledger import BudgetExceeded
from promptrl_jax.rewards.verifier import FEATURES, Verifier
from promptrl_jax.strategies import base, policies
from promptrl_jax.strategies.verified import Verified, watch
from promptrl_jax.tasks import splits
from promptrl_jax.testing import tiny
from promptrl_jax.testing.scripted import ScriptedBackend

TASK = tiny.tasks(3, 'test')[2]
WRONG_FIRST = ['3 * x', 'x', 'x + 2', '2 + x']


def looks_at(feature, weight=1.0):
  count = len(FEATURES)
  weights = [weight * (name == feature) for name in FEATURES]
  return Verifier((0.0,) * count, (1.0,) * count, tuple(weights), 0.0)


class Sure(ScriptedBackend):
  """Is surest of products."""

  def complete(self, requests):
    return [
      Completion(
        c.text,
        c.prompt_tokens,
        c.completion_tokens,
        c.finish_reason,
        Confidence(-0.1 if '* x' in c.text else -1.0, -2.0, 0.5),
      )
      for c in super().complete(requests)
    ]


def line_up(pool, bodies):
  programs = []

  def answer(request):
    programs.append(bodies[len(programs) % len(bodies)])
    return f'\n  return {programs[-1]}'

  backend = Sure(answer)
  return LineUp({'rewriter': backend, 'coder': backend}, pool)


def play_bodies(
  pool, strategy, bodies=WRONG_FIRST, budget=4, protocol='visible1'
):
  run = line_up(pool, bodies).run(
    Entrant.of(strategy), [TASK], protocol=protocol, budget=budget, seed=0
  )
  assert [detail.error for detail in run.details] == ['']
  return run


CONFIG = EditingConfig(budget=4, max_steps=4)
STRATEGIES = {
  'text': base.named('best_of_n'),
  'operators': base.OverOperators(
    policies.fixed('resample', CONFIG.actions), CONFIG
  ),
}
both = pytest.mark.parametrize(
  'strategy', STRATEGIES.values(), ids=STRATEGIES.keys()
)


@both
def test_agreement_overrules_the_first_pass(pool, strategy):
  alone = play_bodies(pool, strategy)
  assert alone.calls.tolist() == [1] and not alone.passed.any()
  run = play_bodies(pool, Verified(strategy, looks_at('agreeing, above mean')))
  assert run.calls.tolist() == [4] and run.passed.all()
  last = run.trace[-1]
  assert last['action'] == 'verify'
  assert last['submission'].endswith('return x + 2')
  # Logits are log 2 and twice log 3, less their mean.
  odds = np.array([2, 3, 3]) / 18 ** (1 / 3)
  chances = odds / (1 + odds)
  np.testing.assert_allclose(last['probabilities'], chances, atol=1e-4)


@both
def test_log_probs_of_the_completion_count(pool, strategy):
  run = play_bodies(
    pool, Verified(strategy, looks_at('mean log-prob, above mean'))
  )
  assert run.trace[-1]['submission'].endswith('3 * x') and not run.passed.any()
  run = play_bodies(
    pool, Verified(strategy, looks_at('mean log-prob, above mean', -1.0))
  )
  assert run.passed.all()


@both
def test_without_visible_tests_it_chooses_among_all_programs(pool, strategy):
  surest = looks_at('mean log-prob, above mean', -1.0)
  run = play_bodies(pool, Verified(strategy, surest), protocol='blind')
  last = run.trace[-1]
  assert last['action'] == 'verify' and len(last['probabilities']) == 4
  assert '* x' not in last['submission']


@both
def test_without_a_pass_the_strategy_decides(pool, strategy):
  run = play_bodies(
    pool, Verified(strategy, looks_at('groups')), ['x', 'x - 2']
  )
  assert run.trace[-1]['action'] != 'verify' and not run.passed.any()


@both
def test_it_submits_as_soon_as_a_program_is_probable_enough(pool, strategy):
  # One program in a group of its own has odds of 2, two that agree of 3.
  agreeing = looks_at('agreeing, mean')
  for stop_at, calls in ((0.6, 1), (0.67, 4), (1.0, 4)):
    run = play_bodies(pool, Verified(strategy, agreeing, stop_at))
    assert run.calls.tolist() == [calls]
    assert run.trace[-1]['action'] == 'verify'
    assert max(run.trace[-1]['probabilities']) >= min(stop_at, 0.66)
  never_so_sure = looks_at('agreeing, mean', -1.0)
  run = play_bodies(pool, Verified(strategy, never_so_sure, 0.6))
  assert run.calls.tolist() == [4]


def test_the_share_of_the_models_own_tests_counts(play):
  programs = iter(('3 * x', 'x + 2', '2 + x'))
  tests = 'assert add(2) == 4\nassert add(5) == 7'
  kinds = {
    'tests': lambda request, number: tests,
    'program': lambda request, number: (
      f'```python\ndef add(x):\n  return {next(programs)}\n```'
    ),
  }
  counts = looks_at('generated tests, above mean')
  run, _ = play(
    Verified(base.named('codet'), counts), kinds, budget=4, tasks=[TASK]
  )
  (played,) = run
  last = played.attempt.trace[-1]
  # 3 * x passes neither, the other two both; the mean is two thirds.
  odds = np.exp(np.array([-2, 1, 1]) / 3)
  np.testing.assert_allclose(
    last['probabilities'], odds / (1 + odds), atol=1e-4
  )
  assert played.submission.endswith('return x + 2')


def test_errors_reach_the_strategy_within():
  seen = []

  def inner(attempt):
    try:
      yield Execute('a')
    except BudgetExceeded as error:
      seen.append(str(error))
    return 'b'

  attempt = Attempt(splits.reveal(TASK, 'visible1'))
  play = watch(attempt, inner(attempt))
  next(play)
  with pytest.raises(StopIteration) as end:
    play.throw(BudgetExceeded('no more'))
  assert seen == ['no more'] and end.value.value[0] == 'b'


def test_a_verifier_is_fitted_to_tell_right_programs_from_wrong_ones(pool):
  def guess(request):
    number = int(request.messages[-1].content.split(' add ')[1].split()[0])
    right, wrong = f'x + {number}', f'{number + 1} * x'  # equal for x = 1
    is_wrong = request.temperature == 0 or request.seed % 3
    return '\n  return ' + (wrong if is_wrong else right)

  backend = CachedBackend(Sure(guess))
  players = LineUp({'rewriter': backend, 'coder': backend}, pool)
  entrant = Entrant.of(base.named('best_of_n'))
  where = {'protocol': 'visible1', 'budget': 4, 'seed': 0}
  train, others = tiny.tasks(12, 'train'), tiny.tasks(12, 'test')
  seen = verifying.judge(players, entrant, train, **where)
  assert seen.rows.shape == (len(seen.solved), len(FEATURES))
  assert set(np.exp(seen.rows[:, 0]).round()) == {1, 2, 4}
  np.testing.assert_allclose(seen.shares.sum(), 12)
  found = verifying.fit(players, 'it', entrant, train, others, **where)
  weights = dict(zip(FEATURES, found.verifier.weights, strict=True))
  assert weights['mean log-prob, above mean'] < -0.3
  assert found.quality['validation']['auroc'] > 0.7
  alone, verified = (
    players.run(one, others, **where)
    for one in (entrant, found.entrant(entrant))
  )
  assert alone.passed.mean() < 0.6 < verified.passed.mean()
