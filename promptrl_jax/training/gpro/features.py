"""What actor and critic see of a query and its candidate answers.

answer --surface features--> f [F]
prompt --embedding, principal components; if wanted--> f
query  --what it asks for; embedding, principal components--> z [Q]
features = [z, f, z f^T]: `models.candidates.cross_features`
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from promptrl_jax.evolution import diversity
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
    self,
    embed_fn: EmbedFn,
    queries: Sequence[str],
    components: int = 2,
    *,
    prompts: Sequence[str] = (),
    prompt_components: int = 0,
  ):
    """Fits the principal components of texts, without any feedback.

    Args:
      embed_fn: n texts -> float [n, E].
      queries: as people ask, more than `components`.
      components: of the embedding of a query.
      prompts: system prompts like those that will answer, more than
        `prompt_components`.
      prompt_components: of the embedding of the system prompt; 0: a prompt is
        seen by its answers alone.

    Raises:
      ValueError: there are too few queries or prompts.
    """
    # Prompts, and the last queries that they are scored on, come again.
    self._embed_fn = diversity.embed_once(embed_fn)
    self._mean, self._axes = _components(
      'queries', embed_fn, queries, components
    )
    self._prompt_axes = None
    if prompt_components:
      self._prompt_axes = _components(
        'prompts', embed_fn, prompts, prompt_components
      )
    self._asked = intent.features(queries).mean(0)
    self.context = self._axes.shape[1] + len(intent.CATEGORIES)
    seen = 1 + len(surface.FEATURES) + prompt_components
    self.size = seen + self.context * (1 + seen)

  def query(self, texts: Sequence[str]) -> np.ndarray:
    """Features of queries, float32 [N, Q]."""
    vectors = np.asarray(self._embed_fn(list(texts)), np.float64)
    projected = (vectors - self._mean) @ self._axes
    # Twice, as the deviation of a mark of 0 or 1 is half or less.
    asked = 2 * (intent.features(texts) - self._asked)
    return np.concatenate([asked, projected], axis=1).astype(np.float32)

  def candidates(
    self,
    query: np.ndarray,
    answers: Sequence[str],
    prompts: Sequence[str] = (),
  ) -> np.ndarray:
    """Features of the answers to one query [Q], float32 [G, D].

    Args:
      prompts: the system prompt of each answer; they are read with
        `prompt_components` alone.
    """
    return self.grid(query[None], [answers], prompts)[0]

  def grid(
    self,
    queries: np.ndarray,
    answers: Sequence[Sequence[str]],
    prompts: Sequence[str] = (),
  ) -> np.ndarray:
    """Features of the answers of n prompts to m queries, float32 [m, n, D].

    Args:
      queries: [m, Q] features of the queries.
      answers: [m][n].
      prompts: [n]; they are read with `prompt_components` alone.
    """
    shape = len(queries), len(answers[0])
    seen = surface.features([text for row in answers for text in row])
    length = seen[:, :1]
    # A length can be too small and too large, which takes its square.
    seen = np.concatenate([seen, length**2], axis=1) - _CENTRE
    seen = seen.reshape(*shape, -1)
    if self._prompt_axes is not None:
      if len(prompts) != shape[1]:
        raise ValueError(
          f'{len(prompts)} prompts of {shape[1]} answers: expected one each'
        )
      mean, axes = self._prompt_axes
      vectors = np.asarray(self._embed_fn(prompts), np.float64)
      read = ((vectors - mean) @ axes).astype(seen.dtype)
      read = np.broadcast_to(read, (*shape, read.shape[1]))
      seen = np.concatenate([seen, read], axis=2)
    return cross_features(queries, seen)


def _components(
  name: str, embed_fn: EmbedFn, texts: Sequence[str], count: int
) -> tuple[np.ndarray, np.ndarray]:
  """The mean [E] of the embeddings of texts, and their first axes [E, count].

  Projections on the axes are divided by the deviation along the first.
  """
  if not 0 <= count < len(texts):
    raise ValueError(
      f'{len(texts)} {name} for {count} components: expected more {name} than '
      'components, and none or more of these'
    )
  vectors = np.asarray(embed_fn(list(texts)), np.float64)
  mean = vectors.mean(0)
  _, sizes, axes = np.linalg.svd(vectors - mean, full_matrices=False)
  # One scale for all: components that vary little count little.
  deviation = sizes[0] / np.sqrt(len(texts))
  return mean, axes[:count].T / max(deviation, 1e-9)
