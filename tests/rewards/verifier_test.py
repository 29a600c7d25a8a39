"""The verifier's features by hand, and what it learns from made-up data."""

import dataclasses
import json

import numpy as np
import pytest

from promptrl_jax.execution import CallResult, ExpressionResult
from promptrl_jax.rewards import verifier
from promptrl_jax.rewards.verifier import FEATURES, Candidate, Verifier


def computes(*values):
  """The outcomes of a program; None raises."""
  return CallResult(
    'ok',
    tuple(
      ExpressionResult('error', error_type='TypeError')
      if value is None
      else ExpressionResult('ok', str(value))
      for value in values
    ),
  )


def test_features_of_candidates_by_hand():
  passing = [
    Candidate('a', computes(1, None), (-0.5, -2.0, 0.25), 9, greedy=True),
    Candidate('b', computes(2, 2), generated=0.25),
    Candidate('a', computes(1, None), (-1.0, -4.0, 0.5), 9),
    Candidate('c', generated=0.75),
  ]
  rows = verifier.features(passing, 8)
  column = dict(zip(FEATURES, rows.T, strict=True))
  of_program = lambda name: (
    column[f'{name}, mean'] + column[f'{name}, above mean']
  )
  np.testing.assert_allclose(column['programs so far'], np.log(8))
  np.testing.assert_allclose(column['share that passes'], 0.5)
  np.testing.assert_allclose(column['groups'], np.log(3))
  np.testing.assert_allclose(of_program('agreeing'), np.log([3, 2, 3, 1]))
  np.testing.assert_allclose(column['agreeing, mean'], np.log(18) / 4)
  np.testing.assert_allclose(of_program('no outcome'), [0, 0, 0, 1], atol=1e-9)
  np.testing.assert_allclose(of_program('raises'), [0.5, 0, 0.5, 0], atol=1e-9)
  # The means are those of the two that are known.
  np.testing.assert_allclose(column['generated tests, mean'], 0.5)
  np.testing.assert_allclose(
    column['generated tests, above mean'], [np.nan, -0.25, np.nan, 0.25]
  )
  np.testing.assert_allclose(column['mean log-prob, mean'], -0.75)
  above = column['mean log-prob, above mean']
  np.testing.assert_allclose(above, [0.25, np.nan, -0.25, np.nan])
  np.testing.assert_allclose(of_program('tokens'), np.log([10, 1, 10, 1]))
  np.testing.assert_allclose(column['greedy, above mean'] > 0, [1, 0, 0, 0])
  np.testing.assert_allclose(
    of_program('place'), np.log([1, 2, 3, 4]), atol=1e-9
  )
  assert verifier.features([], 8).shape == (0, len(FEATURES))


def sampled(count=4000, seed=0):
  """Features and labels that a known logistic model draws."""
  rng = np.random.default_rng(seed)
  rows = rng.normal(3.0, 2.0, (count, len(FEATURES)))
  truth = np.zeros(len(FEATURES))
  truth[[2, 7]] = 1.0, -0.5
  logits = (rows - 3.0) / 2.0 @ truth - 0.5
  return rows, rng.random(count) < 1 / (1 + np.exp(-logits)), truth


def test_fit_recovers_the_model_that_drew_the_labels():
  rows, solved, truth = sampled()
  found = verifier.fit(rows, solved, np.ones(len(rows)))
  np.testing.assert_allclose(found.weights, truth, atol=0.12)
  assert abs(found.bias + 0.5) < 0.12
  chances = found.probabilities(rows)
  assert abs(chances.mean() - solved.mean()) < 1e-3
  as_text = json.dumps(dataclasses.asdict(found))
  assert Verifier.from_json(json.loads(as_text)) == found


def test_shares_weigh_rows_and_an_unknown_feature_says_nothing():
  rows, solved, _ = sampled(400)
  twice = verifier.fit(
    np.concatenate([rows, rows]), np.tile(solved, 2), np.full(800, 0.5)
  )
  once = verifier.fit(rows, solved, np.ones(400))
  np.testing.assert_allclose(twice.weights, once.weights, atol=1e-3)
  unknown = rows[:1].copy()
  unknown[0, 7] = np.nan
  at_mean = rows[:1].copy()
  at_mean[0, 7] = once.mean[7]
  np.testing.assert_allclose(
    once.probabilities(unknown), once.probabilities(at_mean)
  )
  rows[:, 7] = np.nan
  assert verifier.fit(rows, solved, np.ones(400)).weights[7] == 0


def test_what_cannot_be_fitted_or_read_is_refused():
  with pytest.raises(ValueError, match='no program passes'):
    verifier.fit(np.zeros((0, len(FEATURES))), np.zeros(0, bool), np.zeros(0))
  rows, solved, _ = sampled(50)
  saved = dataclasses.asdict(verifier.fit(rows, solved, np.ones(50)))
  saved['weights'] = saved['weights'][:-1]
  with pytest.raises(ValueError, match=f'{len(FEATURES) - 1} features'):
    Verifier.from_json(saved)
