"""Several objectives at once: NSGA-II's order, and the volume of a front.

Deb et al. 2002, A Fast and Elitist Multiobjective Genetic Algorithm: NSGA-II,
IEEE Transactions on Evolutionary Computation 6(2); Zitzler and Thiele 1999,
Multiobjective Evolutionary Algorithms, ibid. 3(4), for the hypervolume. All
objectives are maximised. The front over examples of GEPA, which keeps who is
best at one of them, is another one: `strategies/texts/pareto.py`.
"""

from __future__ import annotations

import numpy as np


def _checked(objectives: np.ndarray) -> np.ndarray:
  objectives = np.asarray(objectives, np.float64)
  is_usable = objectives.ndim == 2 and objectives.shape[1] > 0
  if not is_usable or not np.isfinite(objectives).all():
    raise ValueError(
      f'objectives of shape {objectives.shape}: expected finite numbers '
      '[N, M], M of them for each of N candidates'
    )
  return objectives


def dominates(objectives: np.ndarray) -> np.ndarray:
  """Says who is nowhere worse than whom and better somewhere.

  Args:
    objectives: float [N, M], the higher the better.

  Returns:
    Bool [N, N]: the first of a pair dominates the second.
  """
  values = _checked(objectives)
  first, second = values[:, None], values[None, :]
  return np.all(first >= second, axis=2) & np.any(first > second, axis=2)


def fronts(objectives: np.ndarray) -> np.ndarray:
  """Returns the number of each candidate's front, int [N].

  Front 0 is dominated by nobody, front k by nobody once those before it are
  taken away (section III-A).
  """
  beats = dominates(objectives)
  above = beats.sum(axis=0)  # how many are left that dominate it
  ranks = np.full(len(beats), -1)
  for rank in range(len(beats)):
    front = (above == 0) & (ranks < 0)
    if not front.any():
      break
    ranks[front] = rank
    above = above - beats[front].sum(axis=0)
  return ranks


def crowding(objectives: np.ndarray) -> np.ndarray:
  """Returns the crowding distance of each member of one front, float [N].

  The sum over objectives of the distance between both neighbours, as a share of
  the objective's range (section III-B); infinite at both ends. An objective in
  which all are equal tells nobody apart and counts nothing.
  """
  values = _checked(objectives)
  distances = np.zeros(len(values))
  for column in values.T:
    order = np.argsort(column, kind='stable')
    ordered = column[order]
    spread = ordered[-1] - ordered[0] if len(ordered) else 0.0
    if spread > 0:
      gaps = np.full(len(ordered), np.inf)
      gaps[1:-1] = (ordered[2:] - ordered[:-2]) / spread
      distances[order] += gaps
  return distances


def nsga2_order(objectives: np.ndarray) -> np.ndarray:
  """Returns the candidates by front, within it the loneliest first; int [N].

  The first N/2 of parents and children together are the survivors of NSGA-II.
  """
  values = _checked(objectives)
  ranks = fronts(values)
  distances = np.zeros(len(values))
  for rank in range(ranks.max(initial=-1) + 1):
    front = ranks == rank
    distances[front] = crowding(values[front])
  return np.lexsort((-distances, ranks))


def hypervolume(objectives: np.ndarray, reference: np.ndarray) -> float:
  """Returns the volume that a set dominates above a reference point, exactly.

  By slices along the last objective, recursively. Exact for any M, and
  exponential in it: meant for up to four objectives and a hundred candidates.

  Args:
    objectives: float [N, M], the higher the better.
    reference: float [M]; whoever does not exceed it in all objectives adds
      nothing.
  """
  values, point = _checked(objectives), np.asarray(reference, np.float64)
  if point.shape != values.shape[1:] or not np.isfinite(point).all():
    raise ValueError(
      f'reference {reference}: expected {values.shape[1]} finite numbers, one '
      'for each objective'
    )
  gains = values - point
  return _volume(gains[(gains > 0).all(axis=1)])


def _volume(gains: np.ndarray) -> float:
  """The volume between the origin and positive points [N, M]."""
  if not len(gains):
    return 0.0
  if gains.shape[1] == 1:
    return float(gains.max())
  gains = gains[~dominates(gains).any(axis=0)]
  gains = gains[np.argsort(-gains[:, -1], kind='stable')]
  heights = gains[:, -1] - np.append(gains[1:, -1], 0.0)
  if gains.shape[1] == 2:
    widths = np.maximum.accumulate(gains[:, 0])
    return float(widths @ heights)
  return float(
    sum(
      height * _volume(gains[: i + 1, :-1])
      for i, height in enumerate(heights)
      if height > 0
    )
  )
