"""How close a text is to a reference, by the angle of their embeddings."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

EmbedFn = Callable[[Sequence[str]], np.ndarray]


def similarity_rewards(
  embed_fn: EmbedFn, texts: Sequence[str], references: Sequence[str]
) -> np.ndarray:
  """Returns `(1 + cos(text, reference)) / 2` for each pair.

  That is `1 - |u - v|^2 / 4` for unit vectors u and v, which is how it is
  computed: exactly 1 for identical texts, whatever is rounded. Each distinct
  text is embedded once.

  Args:
    embed_fn: n texts -> [n, D], such as `models.embed.make_embed_fn` builds;
      the vectors need not be normalised.
    texts, references: what is rated, and what each should be like.

  Returns:
    float64 [n], from 0 (opposite) by 0.5 (orthogonal) to 1 (same direction).

  Raises:
    ValueError: there are no texts, not as many references, or an embedding is
      zero or not finite, so that it has no direction.
    TypeError: texts or references are one string.
  """
  for name, value in (('texts', texts), ('references', references)):
    if isinstance(value, str):
      raise TypeError(f'{name} is {value[:40]!r}: expected a list of texts')
  if not len(texts):
    raise ValueError('texts is empty: expected at least one text to rate')
  if len(texts) != len(references):
    raise ValueError(
      f'{len(texts)} texts and {len(references)} references: expected one '
      'reference for each text'
    )
  distinct = list(dict.fromkeys([*texts, *references]))
  units = dict(zip(distinct, _directions(embed_fn, distinct), strict=True))
  gaps = np.array(
    [units[a] - units[b] for a, b in zip(texts, references, strict=True)]
  )
  return np.clip(1.0 - np.sum(np.square(gaps), axis=1) / 4.0, 0.0, 1.0)


def _directions(embed_fn: EmbedFn, texts: list[str]) -> np.ndarray:
  """Unit vectors, float64 [n, D]."""
  vectors = np.asarray(embed_fn(texts), np.float64)
  if vectors.ndim != 2 or len(vectors) != len(texts):
    raise ValueError(
      f'embed_fn returned shape {vectors.shape} for {len(texts)} texts: '
      f'expected ({len(texts)}, D)'
    )
  norms = np.linalg.norm(vectors, axis=1, keepdims=True)
  for i in np.flatnonzero(~(np.isfinite(norms) & (norms > 0))[:, 0]):
    raise ValueError(
      f'the embedding of {texts[i][:40]!r} has norm {norms[i, 0]}: it has no '
      'direction; check embed_fn'
    )
  return vectors / norms
