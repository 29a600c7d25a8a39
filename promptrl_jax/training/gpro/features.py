"""What actor and critic see of a query and its candidate answers.

  answer --surface features--> f [F]
  query  --embedding, clusters--> z [Q], near 1 for the cluster that it is in
  features = [z, f, z f^T]: `models.candidates.cross_features`

Clusters, and not the embedding itself: a few hundred ratings tell what is liked
for each of a few kinds of queries, and no more.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.cluster import vq

from promptrl_jax.evolution.diversity import EmbedFn
from promptrl_jax.models.candidates import cross_features
from promptrl_jax.rewards import surface

# About the mean of a surface feature. Products of centred numbers differ more.
_CENTRE = 0.4
_TRIES = 10  # of k-means
# A centre that is farther by this share of the usual squared distance to the
# nearest one has exp(-1) times the weight.
_SHARPNESS = 0.1


class FeatureMap:
  """Features of candidates; a function of what it was fitted on alone.

  Attributes:
    size: D, features of a candidate.
    kinds: Q, clusters of queries.
  """

  def __init__(self, embed_fn: EmbedFn, queries: Sequence[str], kinds: int = 6):
    """Finds the clusters by k-means++, without any feedback.

    Args:
      embed_fn: n texts -> float [n, E].
      queries: as people ask, more than `kinds`.
      kinds: Q.

    Raises:
      ValueError: there are too few queries.
    """
    if not 0 < kinds < len(queries):
      raise ValueError(
        f'{len(queries)} queries for {kinds} kinds: expected more queries than '
        'kinds, and at least one kind'
      )
    self._embed_fn, self.kinds = embed_fn, kinds
    vectors = np.asarray(embed_fn(list(queries)), np.float64)
    tries = [
      vq.kmeans2(vectors, kinds, minit='++', rng=seed)[0]
      for seed in range(_TRIES)
    ]
    costs = [_distances(vectors, found).min(1).mean() for found in tries]
    self._centres = tries[int(np.argmin(costs))]
    self._width = _SHARPNESS * float(min(costs)) + 1e-12
    seen = 1 + len(surface.FEATURES)
    self.size = seen + kinds * (1 + seen)

  def query(self, texts: Sequence[str]) -> np.ndarray:
    """Features of queries, float32 [N, Q]; each row adds up to 1."""
    vectors = np.asarray(self._embed_fn(list(texts)), np.float64)
    near = -_distances(vectors, self._centres) / self._width
    weights = np.exp(near - near.max(axis=1, keepdims=True))
    return (weights / weights.sum(1, keepdims=True)).astype(np.float32)

  def candidates(self, query: np.ndarray, answers: Sequence[str]) -> np.ndarray:
    """Features of the answers to one query [Q], float32 [G, D]."""
    seen = surface.features(answers)
    length = seen[:, :1]
    # A length can be too small and too large, which takes its square.
    seen = np.concatenate([seen, length**2], axis=1) - _CENTRE
    return cross_features(query, seen)


def _distances(vectors: np.ndarray, centres: np.ndarray) -> np.ndarray:
  """Squared distances [N, Q]."""
  return np.square(vectors[:, None] - centres).sum(axis=-1)
