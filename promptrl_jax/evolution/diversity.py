"""How different prompts are: by their words, by their vectors, by fitness.

All pairs are compared by products of matrices, [N, V] words or [N, D] vectors,
so that a few hundred prompts take milliseconds.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Sequence

import numpy as np

# texts -> [n, D], such as `models.embed.make_embed_fn` builds.
EmbedFn = Callable[[Sequence[str]], np.ndarray]

_WORD = re.compile(r'\w+')


def embed_once(embed_fn: EmbedFn) -> EmbedFn:
  """Returns the function with a memory: no text is embedded a second time."""
  known: dict[str, np.ndarray] = {}

  def embed(texts: Sequence[str]) -> np.ndarray:
    new = [text for text in dict.fromkeys(texts) if text not in known]
    if new:
      known.update(zip(new, np.asarray(embed_fn(new)), strict=True))
    return np.stack([known[text] for text in texts])

  return embed


def word_vectors(texts: Sequence[str], size: int = 512) -> np.ndarray:
  """Returns a vector of the words of each text, float32 [N, size].

  An `EmbedFn` where there is no encoder: the cosine of two texts is about that
  of their word counts. Each word adds 1 or -1 in a place that its hash says
  (Weinberger et al. 2009, Feature Hashing for Large Scale Multitask Learning).
  """
  vectors = np.zeros((len(texts), size), np.float32)
  for vector, text in zip(vectors, texts, strict=True):
    words = _WORD.findall(text.lower())
    codes = np.array([zlib.crc32(word.encode()) for word in words], np.int64)
    vector += np.bincount((codes >> 1) % size, 2.0 * (codes & 1) - 1.0, size)
  return vectors


def jaccard_diversity(texts: Sequence[str]) -> float:
  """Returns the mean of 1 - |A and B| / |A or B| over all pairs, in [0, 1].

  A and B are the sets of words of two texts, words being what white space
  separates; pairs without any word are left out. 0 where no pair is left.
  """
  places: dict[str, int] = {}
  rows = [
    [places.setdefault(word, len(places)) for word in text.split()]
    for text in texts
  ]
  has = np.zeros((len(texts), len(places)), np.float32)  # [N, V]
  for row, words in zip(has, rows, strict=True):
    row[words] = 1.0
  common = has @ has.T
  sizes = has.sum(axis=1)
  union = sizes[:, None] + sizes[None, :] - common
  pairs = np.triu(union > 0, k=1)
  if not pairs.any():
    return 0.0
  return float(np.mean(1.0 - common[pairs] / union[pairs], dtype=np.float64))


def cosines(vectors: np.ndarray) -> np.ndarray:
  """Returns the cosines of all pairs, float32 [N, N].

  Args:
    vectors: float [N, D], finite. One that is 0 has cosine 1 with another one
      that is 0 and with itself, and 0 with all others.
  """
  vectors = np.asarray(vectors, np.float32)
  if vectors.ndim != 2 or not np.isfinite(vectors).all():
    raise ValueError(
      f'vectors of shape {vectors.shape}: expected finite numbers [N, D]'
    )
  norms = np.linalg.norm(vectors, axis=1, keepdims=True)
  units = vectors / np.where(norms > 0, norms, 1.0)
  is_zero = norms[:, 0] == 0
  # Not `@`, whose threads wait for each other on a busy machine: 40 ms for what
  # takes 0.3 ms (60 vectors of 512).
  products = np.clip(np.einsum('nd,md->nm', units, units), -1.0, 1.0)
  return np.where(np.outer(is_zero, is_zero), np.float32(1.0), products)


def embedding_diversity(vectors: np.ndarray) -> float:
  """Returns the mean of 1 - cosine over all pairs of [N, D], in [0, 2].

  0 for fewer than two.
  """
  if len(vectors) < 2:
    return 0.0
  pairs = np.triu_indices(len(vectors), k=1)
  return float(np.mean(1.0 - cosines(vectors)[pairs], dtype=np.float64))


def distinct(
  texts: Sequence[str],
  embed_fn: EmbedFn | None = None,
  similarity: float = 0.95,
) -> list[int]:
  """Returns the places of texts that say something new, in order.

  A text is dropped if one that was kept before it is equal to it, or has a
  vector with a larger cosine than `similarity`.

  Args:
    texts: [N], the ones to keep first.
    embed_fn: None: equal texts alone are dropped.
    similarity: in (0, 1]; see above.
  """
  if not 0 < similarity <= 1:
    raise ValueError(f'similarity={similarity}: expected a cosine in (0, 1]')
  first = {text: i for i, text in reversed(list(enumerate(texts)))}
  places = sorted(first.values())
  if embed_fn is None or len(places) < 2:
    return places
  vectors = np.asarray(embed_fn([texts[i] for i in places]))
  if len(vectors) != len(places):
    raise ValueError(
      f'embed_fn returned shape {vectors.shape} for {len(places)} texts'
    )
  is_near = cosines(vectors) > similarity
  is_kept = np.ones(len(places), bool)
  for i in range(1, len(places)):
    is_kept[i] = not is_near[i, :i][is_kept[:i]].any()
  return [place for place, kept in zip(places, is_kept, strict=True) if kept]


def fitness_variance(fitness: np.ndarray) -> float:
  """Returns the population variance of the known fitness of [N], else 0."""
  known = np.asarray(fitness, np.float64)
  known = known[~np.isnan(known)]
  return float(known.var()) if len(known) else 0.0
