"""The candidates that are best at something: a front over examples.

Agrawal et al. 2025, GEPA: Reflective Prompt Evolution Can Outperform
Reinforcement Learning, arXiv 2507.19457, algorithm 2. A candidate with a lower
mean is kept if it alone is best on an example: what it says there may be what
the others lack.
"""

from __future__ import annotations

import numpy as np


def best_at(scores: np.ndarray) -> np.ndarray:
  """Says who has the highest score on each example.

  Args:
    scores: float [candidates, examples], finite.

  Returns:
    Bool of the same shape; ties are all best.
  """
  scores = np.asarray(scores)
  if scores.ndim != 2 or 0 in scores.shape or not np.isfinite(scores).all():
    raise ValueError(
      f'scores of shape {scores.shape}: expected finite numbers '
      '[candidates, examples], at least one of each'
    )
  return np.equal(scores, scores.max(axis=0))


def front(scores: np.ndarray) -> list[int]:
  """Returns the candidates that are needed to be best everywhere, in order.

  One is dropped if on each example where it is best another one that is left is
  best, too. The lowest means are looked at first, so that the front holds the
  better candidates of those that could stand in for each other; of equals, as
  in the released code, the one that is best on an earlier example, then the
  oldest.

  Args:
    scores: float [candidates, examples].
  """
  best = best_at(scores)
  means = np.asarray(scores).mean(axis=1)
  left = np.any(best, axis=1)
  # One pass is enough: a drop makes no other candidate less needed.
  for k in np.lexsort((best.argmax(axis=1), means)):
    others = best & left[:, None]
    others[k] = False
    if left[k] and others.any(axis=0)[best[k]].all():
      left[k] = False
  return np.flatnonzero(left).tolist()


def weights(scores: np.ndarray) -> dict[int, int]:
  """Returns on how many examples each candidate of the front is best.

  A parent is drawn with probability proportional to these.
  """
  best = best_at(scores)
  return {k: int(best[k].sum()) for k in front(scores)}
