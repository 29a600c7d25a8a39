"""What actor and critic see of a query and its candidate answers.

answer --surface features--> f [F]
query  --embedding, principal components--> z [Q]
features = [z, f, z f^T]: `models.candidates.cross_features`
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from promptrl_jax.evolution.diversity import EmbedFn
from promptrl_jax.models.candidates import cross_features
from promptrl_jax.rewards import surface

# About the mean of a surface feature. Products of centred numbers differ more.
_CENTRE = 0.4


class FeatureMap:
  """Features of candidates; a function of what it was fitted on alone.

  Attributes:
    size: D, features of a candidate.
    components: Q, features of a query.
  """

  def __init__(
    self, embed_fn: EmbedFn, queries: Sequence[str], components: int = 8
  ):
    """Fits the principal components of queries, without any feedback.

    Args:
      embed_fn: n texts -> float [n, E].
      queries: as people ask, more than `components`.
      components: Q.

    Raises:
      ValueError: there are too few queries.
    """
    if not 0 < components < len(queries):
      raise ValueError(
        f'{len(queries)} queries for {components} components: expected more '
        'queries than components, and at least one component'
      )
    self._embed_fn = embed_fn
    vectors = np.asarray(embed_fn(list(queries)), np.float64)
    self._mean = vectors.mean(0)
    _, _, axes = np.linalg.svd(vectors - self._mean, full_matrices=False)
    projected = (vectors - self._mean) @ axes[:components].T
    # One scale for all: components that vary little count little.
    self._axes = axes[:components].T / max(projected[:, 0].std(), 1e-9)
    self.components = self._axes.shape[1]
    seen = 1 + len(surface.FEATURES)
    self.size = seen + self.components * (1 + seen)

  def query(self, texts: Sequence[str]) -> np.ndarray:
    """Features of queries, float32 [N, Q]."""
    vectors = np.asarray(self._embed_fn(list(texts)), np.float64)
    return ((vectors - self._mean) @ self._axes).astype(np.float32)

  def candidates(self, query: np.ndarray, answers: Sequence[str]) -> np.ndarray:
    """Features of the answers to one query [Q], float32 [G, D]."""
    seen = surface.features(answers)
    length = seen[:, :1]
    # A length can be too small and too large, which takes its square.
    seen = np.concatenate([seen, length**2], axis=1) - _CENTRE
    return cross_features(query, seen)
