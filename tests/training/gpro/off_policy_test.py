"""What another actor would have earned: unbiased, and with an interval."""

import jax
import numpy as np
import pytest

from promptrl_jax.training.gpro import off_policy, replay
from promptrl_jax.training.gpro.config import GPROConfig


def test_the_estimate_is_unbiased_whatever_the_critic_says():
  old, new = np.array([0.5, 0.3, 0.2]), np.array([0.1, 0.1, 0.8])
  true, scores = np.array([0.9, 0.2, 0.6]), np.array([0.1, 0.8, 0.3])
  total = 0.0
  for shown in range(3):
    (value,) = jax.jit(off_policy.doubly_robust)(
      true[shown][None],
      np.array([shown]),
      scores[None],
      np.log(old)[None],
      np.log(new)[None],
    )
    total += old[shown] * value
  assert total == pytest.approx(new @ true, rel=1e-5)
  # One query by hand: 0.01 + 0.08 + 0.24 + 0.2 * (0.9 - 0.1).
  (value,) = off_policy.doubly_robust(
    np.array([0.9]),
    np.array([0]),
    scores[None],
    np.log(old)[None],
    np.log(new)[None],
  )
  assert value == pytest.approx(0.49)


def logged(seed, queries, critic_error):
  """A replay of a nearly uniform actor, and a new one that is better."""
  rng = np.random.default_rng(seed)
  config = GPROConfig(features=1, candidates=3, capacity=queries)
  true = rng.uniform(0.2, 0.8, (queries, 3))
  p = rng.dirichlet([5, 5, 5], queries)
  shown = np.array([rng.choice(3, p=row) for row in p])
  places = np.arange(queries), shown
  log = replay.empty(config)._replace(
    mask=np.ones((queries, 3), bool),
    logps=np.log(p),
    scores=true + critic_error * rng.normal(size=true.shape),
    shown=shown,
    reward=(rng.random(queries) < true[places]).astype(np.float32),
    kind=np.full(queries, replay.THUMBS),
  )
  new = np.exp(4 * true) / np.exp(4 * true).sum(1, keepdims=True)
  return log, np.log(new), (new * true).sum(1).mean()


@pytest.mark.parametrize('critic_error', [0.05, 0.5])
def test_the_interval_covers_what_the_new_actor_earns(critic_error):
  covered, widths = [], []
  for seed in range(60):
    log, new, value = logged(seed, 200, critic_error)
    estimate = off_policy.evaluate(log, new, resamples=300)
    covered.append(estimate.low <= value <= estimate.high)
    widths.append(estimate.high - estimate.low)
    assert estimate.low <= estimate.value <= estimate.high
    assert 1 <= estimate.effective <= estimate.queries == 200
  assert np.mean(covered) >= 0.85
  assert np.mean(widths) < 0.35


def test_the_same_actor_gains_nothing_and_pairs_are_left_out():
  log, _, _ = logged(0, 200, 0.0)
  log.kind[:50] = replay.PAIR
  log.kind[50:100] = replay.NONE
  same = off_policy.evaluate(log, log.logps)
  assert same.queries == 100
  assert same.effective == pytest.approx(100)
  assert same.gain_low < 0 < same.gain_high
  assert same == off_policy.evaluate(log, log.logps)  # of one seed
  log.kind[:] = replay.PAIR
  with pytest.raises(ValueError, match='0 queries with a rating or a thumb'):
    off_policy.evaluate(log, log.logps)
