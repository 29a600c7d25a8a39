"""What it is worth to choose the next operator by what is known of a failure.

An operator is chosen for each failure:

  one       the same for all of them
  kind      by what became of the program
  linear    by a linear model of the controller's observation (ridge regression)
  problem   by what solved this very problem in other runs

Each choice is scored on other problems, or on other runs of the problem, than
those that it was made on. `problem` says what a perfect observer could gain, up
to the noise of the few runs that it chooses by; what `linear` gains over `one`
is what the observation tells.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from promptrl_jax.evaluation import markdown, statistics

FEWEST = 10  # failures, since choices are scored on another tenth of them
_PENALTIES = (1e1, 1e2, 1e3, 1e4, 1e5)
# Runs that the rates of all problems count for beside those of a problem.
_PRIOR = 1.0


def worth(
  solved: np.ndarray,
  kinds: Sequence[str],
  observations: np.ndarray,
  resamples: int = statistics.RESAMPLES,
) -> dict[str, dict[str, Any]]:
  """Returns the share of failures that each way to choose solves.

  Args:
    solved: bool [operators, runs, failures], at least two runs.
    kinds: what became of each program, [failures].
    observations: what a controller sees of each failure, [failures, O].
    resamples: of the bootstrap over problems.

  Returns:
    By the name of a way, `solved`, and, against `one`, the `difference` with
    the ends of its interval, `low` and `high`.
  """
  runs, failures = solved.shape[1:]
  if runs < 2 or failures < FEWEST:
    raise ValueError(
      f'{runs} runs of {failures} failures: expected at least 2 of at least '
      f'{FEWEST}, since choices are scored on others than they are made on'
    )
  rates = solved.mean(axis=1)  # [operators, failures]
  scores = {
    name: _score(choose, rates)
    for name, choose in {
      'one': lambda train, test: _of_all(rates, train, test),
      'kind': lambda train, test: _of_kind(rates, np.array(kinds), train, test),
      'linear': lambda train, test: _linear(rates, observations, train, test),
    }.items()
  }
  scores['problem'] = _of_problem(solved)
  base = scores['one'][None]
  found: dict[str, dict[str, Any]] = {}
  for name, score in scores.items():
    found[name] = {'solved': float(score.mean())}
    if name != 'one':
      low, high = statistics.bootstrap_difference(
        score[None], base, resamples=resamples
      )
      difference = float(score.mean() - base.mean())
      found[name] |= {'difference': difference, 'low': low, 'high': high}
  return found


def to_markdown(found: Mapping[str, Mapping[str, float]]) -> str:
  """Prints the result of `worth`, in percent."""
  return markdown.table(
    [
      {
        'chosen by': name,
        'solved': markdown.points(row['solved']),
        'against one for all': markdown.interval(row, 'difference', '+')
        if 'difference' in row
        else '-',
      }
      for name, row in found.items()
    ]
  )


def _score(choose: Any, rates: np.ndarray) -> np.ndarray:
  """The rate of the chosen operator of each failure, [failures]."""
  scores = np.zeros(rates.shape[1])
  for train, test in _folds(rates.shape[1]):
    scores[test] = rates[choose(train, test), test]
  return scores


def _folds(count: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
  order = np.random.default_rng(0).permutation(count)
  for test in np.array_split(order, FEWEST):
    yield np.setdiff1d(order, test), test


def _of_all(
  rates: np.ndarray, train: np.ndarray, test: np.ndarray
) -> np.ndarray:
  return np.full(len(test), rates[:, train].mean(axis=1).argmax())


def _of_kind(
  rates: np.ndarray, kinds: np.ndarray, train: np.ndarray, test: np.ndarray
) -> np.ndarray:
  chosen = _of_all(rates, train, test)
  for kind in set(kinds[test]):
    alike = train[kinds[train] == kind]
    if len(alike):
      chosen[kinds[test] == kind] = rates[:, alike].mean(axis=1).argmax()
  return chosen


def _linear(
  rates: np.ndarray, features: np.ndarray, train: np.ndarray, test: np.ndarray
) -> np.ndarray:
  """Ridge regression; the penalty has the least leave-one-out errors."""
  mean, scale = features[train].mean(axis=0), features[train].std(axis=0)
  known, new = (
    (features[rows] - mean) / np.where(scale > 0, scale, 1.0)
    for rows in (train, test)
  )
  centre = rates[:, train].mean(axis=1)
  targets = rates[:, train].T - centre
  # By the products of problems: there are about as many as features.
  values, vectors = np.linalg.eigh(known @ known.T)
  rotated = vectors.T @ targets

  def error(penalty: float) -> float:
    kept = values / (values + penalty)
    left = targets - vectors @ (kept[:, None] * rotated)
    leverage = np.square(vectors) @ kept + 1 / len(train)
    return float(np.square(left / (1 - leverage)[:, None]).sum())

  penalty = min(_PENALTIES, key=error)
  weights = vectors @ (rotated / (values + penalty)[:, None])
  return (centre + new @ (known.T @ weights)).argmax(axis=1)


def _of_problem(solved: np.ndarray) -> np.ndarray:
  """Chosen by half of the runs and scored on the others, either way round."""
  halves = np.array_split(solved.astype(float), 2, axis=1)
  scores = []
  for seen, scored in (halves, halves[::-1]):
    prior = seen.mean(axis=(1, 2))[:, None]
    belief = (seen.sum(axis=1) + _PRIOR * prior) / (seen.shape[1] + _PRIOR)
    chosen = belief.argmax(axis=0)
    scores.append(scored.mean(axis=1)[chosen, np.arange(len(chosen))])
  return np.mean(scores, axis=0)
