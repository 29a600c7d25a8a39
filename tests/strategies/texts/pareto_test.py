"""The front over examples, by hand-worked numbers."""

import numpy as np
import pytest

from promptrl_jax.strategies.texts import pareto


def test_one_that_alone_is_best_on_an_example_stays():
  scores = np.array(
    [
      [0.0, 0.0, 1.0],  # the only one at the third
      [1.0, 0.5, 0.0],  # at the first, which the last one is, too
      [1.0, 1.0, 0.5],
    ]
  )
  assert pareto.best_at(scores).tolist() == [
    [False, False, True],
    [True, False, False],
    [True, True, False],
  ]
  assert pareto.front(scores) == [0, 2]
  assert pareto.weights(scores) == {0: 1, 2: 2}


def test_several_together_make_another_one_needless():
  scores = np.array([[1.0, 1.0, 0.0], [1.0, 0.0, 0.9], [0.0, 1.0, 1.0]])
  # 0.67, 0.63 and 0.67: the second goes first, since the first has its example;
  # the first is then alone there.
  assert pareto.front(scores) == [0, 2]
  # Had the first had a lower mean, it would have gone: both others cover it.
  scores[0, 2] = -1.0
  assert pareto.front(scores) == [1, 2]


def test_of_equals_the_younger_stays():
  assert pareto.front(np.ones((3, 2))) == [2]


def test_a_front_is_best_everywhere():
  rng = np.random.default_rng(0)
  for _ in range(200):
    shape = rng.integers(1, 6, size=2)
    scores = rng.integers(0, 3, size=shape).astype(float)
    front = pareto.front(scores)
    assert (scores[front].max(axis=0) == scores.max(axis=0)).all()
    for k in front:  # and none of it can be spared
      rest = [other for other in front if other != k]
      assert not rest or ((scores[rest].max(axis=0) < scores.max(axis=0)).any())


@pytest.mark.parametrize('scores', [np.zeros((0, 2)), [[np.nan]], [1.0]])
def test_scores_that_cannot_be_compared_are_refused(scores):
  with pytest.raises(ValueError, match='expected finite numbers'):
    pareto.front(scores)
