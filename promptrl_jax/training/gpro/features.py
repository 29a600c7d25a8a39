"""What actor and critic see of a query and its candidate answers.

answer --surface features--> f [F]
query  --what it asks for; embedding, principal components--> z [Q]
features = [z, f, z f^T]: `models.candidates.cross_features`
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from promptrl_jax.evolution.diversity import EmbedFn
from promptrl_jax.models.candidates import cross_features
from promptrl_jax.rewards import intent, surface

# About the mean of a surface feature. Products of centred numbers differ more.
_CENTRE = 0.4


class FeatureMap:
  """Features of candidates; a function of what it was fitted on alone.

  Attributes:
    size: D, features of a candidate.
    context: Q, features of a query.
  """

  def __init__(
    self, embed_fn: EmbedFn, queries: Sequence[str], components: int = 2
  ):
    """Fits the principal components of queries, without any feedback.

    Args:
      embed_fn: n texts -> float [n, E].
      queries: as people ask, more than `components`.
      components: of the embedding.

    Raises:
      ValueError: there are too few queries.
    """
    if not 0 <= components < len(queries):
      raise ValueError(
        f'{len(queries)} queries for {components} components: expected more '
        'queries than components, and none or more of these'
      )
    self._embed_fn = embed_fn
    vectors = np.asarray(embed_fn(list(queries)), np.float64)
    self._mean = vectors.mean(0)
    _, sizes, axes = np.linalg.svd(vectors - self._mean, full_matrices=False)
    # One scale for all: components that vary little count little.
    deviation = sizes[0] / np.sqrt(len(queries))
    self._axes = axes[:components].T / max(deviation, 1e-9)
    self._asked = intent.features(queries).mean(0)
    self.context = self._axes.shape[1] + len(intent.CATEGORIES)
    seen = 1 + len(surface.FEATURES)
    self.size = seen + self.context * (1 + seen)

  def query(self, texts: Sequence[str]) -> np.ndarray:
    """Features of queries, float32 [N, Q]."""
    vectors = np.asarray(self._embed_fn(list(texts)), np.float64)
    projected = (vectors - self._mean) @ self._axes
    # Twice, as the deviation of a mark of 0 or 1 is half or less.
    asked = 2 * (intent.features(texts) - self._asked)
    return np.concatenate([asked, projected], axis=1).astype(np.float32)

  def candidates(self, query: np.ndarray, answers: Sequence[str]) -> np.ndarray:
    """Features of the answers to one query [Q], float32 [G, D]."""
    seen = surface.features(answers)
    length = seen[:, :1]
    # A length can be too small and too large, which takes its square.
    seen = np.concatenate([seen, length**2], axis=1) - _CENTRE
    return cross_features(query, seen)
