"""One budget for all problems: what is given up, and what is never exceeded."""

import re

import numpy as np
import pytest

from promptrl_jax.envs.editing.config import EditingConfig
from promptrl_jax.envs.editing.rollout import Decision
from promptrl_jax.evaluation import allocation, critic, reliability
from promptrl_jax.evaluation.open_loop import strategy
from promptrl_jax.evaluation.play import Entrant, LineUp
from promptrl_jax.execution.memo import MemoPool
from promptrl_jax.llm.attempt import CODER, REWRITER
from promptrl_jax.strategies.allocation import Allocation
from promptrl_jax.strategies.base import OverOperators
from promptrl_jax.testing import tiny
from promptrl_jax.testing.scripted import ScriptedBackend

EDITING = EditingConfig(
  actions=('keep', 'resample', 'submit'), budget=12, max_steps=12
)
TASKS = tiny.tasks(8, 'test')


def write_program(request):
  """Solves odd numbers at one draw in three, even ones never."""
  number = int(re.search(r'add (\d+)', request.messages[-1].content).group(1))
  is_solved = number % 2 and request.temperature and request.seed % 3 == 0
  return f'\n  return x + {number if is_solved else number + 50}'


@pytest.fixture
def line_up(pool):
  return LineUp(
    {
      REWRITER: ScriptedBackend(lambda request: ''),
      CODER: ScriptedBackend(write_program),
    },
    MemoPool(pool),
  )


def policy(values):
  """Samples on; the values of the rows are those given."""

  def act(observations, masks, step):
    del step
    actions = np.where(masks[:, 1], 1, 0).astype(np.int32)
    return Decision(actions, np.zeros(len(masks)), np.asarray(values))

  return act


def play(line_up, values, total, threshold):
  shared = Allocation(policy(values), EDITING, total=total, threshold=threshold)
  return line_up.run(
    Entrant(lambda seed: shared), TASKS, protocol='visible1', budget=2, seed=0
  )


HOPEFUL = [0.1, 0.9] * 4  # of the odd ones


def test_the_total_is_never_exceeded(line_up):
  for total in (8, 11, 20):
    run = play(line_up, HOPEFUL, total, threshold=-1.0)
    assert run.calls.sum() <= total
    assert (run.calls >= 1).all()


def test_what_is_below_the_threshold_ends_after_its_first_call(line_up):
  run = play(line_up, HOPEFUL, 60, threshold=0.5)
  assert (run.calls[::2] == 1).all()
  assert (run.calls[1::2] > 1).any()


def test_calls_go_to_the_largest_values(line_up):
  total = 8 + 12
  informed = play(line_up, HOPEFUL, total, threshold=0.5)
  misled = play(line_up, HOPEFUL[::-1], total, threshold=0.5)
  assert informed.passed.sum() > misled.passed.sum()


def test_giving_up_needs_submit():
  config = EditingConfig(actions=('keep', 'resample'))
  with pytest.raises(ValueError, match="expected 'submit'"):
    Allocation(policy(HOPEFUL), config, total=8, threshold=0.0)


def test_both_sides_of_the_comparison_spend_the_same(line_up):
  (row,) = allocation.compare(
    line_up,
    TASKS,
    TASKS,
    {0: policy(HOPEFUL)},
    strategy(('keep',), EDITING),
    EDITING,
    protocol='visible1',
    budgets=(3,),
    resamples=200,
    thresholds=(-1.0, 0.5),
  )
  assert row['shared_calls'] <= row['capped_calls'] + 1e-9
  assert row['shared'] > row['capped']
  text = allocation.to_markdown([row])
  assert f'{100 * row["shared"]:.1f}' in text


def test_reliability_compares_what_was_said_with_what_came_true():
  predicted = np.linspace(0, 1, 1000)
  happened = np.random.default_rng(0).random(1000) < predicted
  rows = critic.reliability(predicted, happened, bins=5)
  assert [row['count'] for row in rows] == [200] * 5
  for row in rows:
    assert abs(row['predicted'] - row['happened']) < 0.1


def test_returns_are_those_of_the_steps_that_follow(line_up):
  values = [0.25] * 8
  said, happened = critic.values_and_returns(
    line_up, TASKS, policy(values), EDITING, protocol='visible1', seed=0
  )
  assert said.shape == happened.shape and (said == 0.25).all()
  strategy = OverOperators(policy(values), EDITING)
  run = line_up.run(
    Entrant(lambda seed: strategy),
    TASKS,
    protocol='visible1',
    budget=EDITING.budget,
    seed=0,
  )
  expected = [
    run.passed[row['row']] - 0.02 * (run.calls[row['row']] - row['step'])
    for row in run.trace
  ]
  np.testing.assert_allclose(happened, expected)


def test_a_critic_is_calibrated_by_what_came_true():
  rng = np.random.default_rng(0)
  said = rng.random(4000)
  happened = (rng.random(4000) < said**2).astype(float)
  calibrated = critic.calibration(said[:2000], happened[:2000])(said[2000:])
  assert (np.diff(calibrated[np.argsort(said[2000:])]) >= 0).all()
  before, after = (
    critic.mean_error(critic.reliability(values, happened[2000:]))
    for values in (said[2000:], calibrated)
  )
  assert after < 0.04 < 0.1 < before


def test_the_reliability_of_a_critic_is_measured_and_drawn(line_up, tmp_path):
  found = critic.measure(
    line_up,
    TASKS,
    TASKS,
    policy([0.9] * 8),
    EDITING,
    protocol='visible1',
    seed=0,
  )
  # It always says the same; calibrated on the same tasks it says the mean.
  assert found['calibrated']['error'] < found['critic']['error']
  assert reliability.of_critic(tmp_path / 'r.png', found).stat().st_size > 5000
