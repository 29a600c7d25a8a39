"""Prompts that are good together: for each case the best of a few counts.

Where every query is answered by the prompt that suits it best, a population is
worth the mean over queries of the best score in it. That is submodular, so that
taking whoever adds most, one after the other, is at least 1 - 1/e as good as
the best choice: Nemhauser, Wolsey and Fisher 1978, An Analysis of
Approximations for Maximizing Submodular Set Functions.
"""

from __future__ import annotations

import numpy as np


def cover_order(objectives: np.ndarray) -> np.ndarray:
  """Returns the candidates, each the one that adds most to those before it.

  Of those that add equally much the one with the higher mean comes first.

  Args:
    objectives: float [N, M], scores of N candidates in M cases, the higher the
      better.

  Returns:
    Int [N].
  """
  values = np.asarray(objectives, np.float64)
  if values.ndim != 2 or not np.isfinite(values).all():
    raise ValueError(
      f'objectives of shape {values.shape}: expected finite numbers [N, M]'
    )
  means = values.mean(axis=1)
  covered = np.full(values.shape[1], values.min(initial=0.0) - 1.0)
  left, order = list(range(len(values))), []
  while left:
    gains = np.maximum(values[left], covered).sum(axis=1)
    ranked = zip(gains.round(12), means[left], left, strict=True)
    # `max` takes the first of equals.
    chosen = max(ranked, key=lambda one: one[:2])[2]
    order.append(chosen)
    left.remove(chosen)
    covered = np.maximum(covered, values[chosen])
  return np.array(order, int)
