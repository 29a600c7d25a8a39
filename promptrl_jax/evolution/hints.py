"""Where a prompt should get better: from a critic, or from what people wrote.

critic's gradient over sections ──┐
                                  ├──> Hint(section, text) ──> guided mutation
comments ──clusters──medoid───────┘
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from promptrl_jax.evolution.diversity import EmbedFn, cosines
from promptrl_jax.prompts.genome import ABOUT


@dataclasses.dataclass(frozen=True)
class Hint:
  """What should become better, and in which section.

  Attributes:
    text: in words; a line that could stand in the section.
    section: that is to follow it.
    weight: what speaks for it: the gain that a critic expects, or the number
      of people.
  """

  text: str
  section: str = 'constraints'
  weight: float = 1.0

  def __post_init__(self):
    if not self.text.strip() or not self.section.strip():
      raise ValueError(
        f'text={self.text!r}, section={self.section!r}: expected words in both'
      )


@dataclasses.dataclass(frozen=True)
class Anneal:
  """A strength that falls, or rises, linearly from generation to generation.

  Attributes:
    start, end: probabilities in the first generation, and from the last on.
    generations: from the first to the last; 0 for `end` throughout.
  """

  start: float = 1.0
  end: float = 0.1
  generations: int = 20

  def __post_init__(self):
    for name in ('start', 'end'):
      if not 0 <= getattr(self, name) <= 1:
        raise ValueError(
          f'{name}={getattr(self, name)}: expected a probability in 0..1'
        )
    if self.generations < 0:
      raise ValueError(f'generations={self.generations}: expected 0 or more')

  def __call__(self, generation: int) -> float:
    """The strength in a generation."""
    if generation >= self.generations:
      return self.end
    step = (self.end - self.start) / self.generations
    return self.start + step * max(generation, 0)


def from_gradient(
  gradient: np.ndarray,
  vectors: np.ndarray,
  sections: Sequence[str],
  phrases: Mapping[str, Sequence[str]],
  embed_fn: EmbedFn,
) -> Hint | None:
  """Returns the phrase that a critic expects most of, in the section's place.

  To first order, a section whose vector x becomes that of a phrase, e, gains
  g (e - x), where g is the gradient of the critic's score with regard to x.

  Args:
    gradient: float [S, D], of the critic's score, such as
      `jax.grad(score)(vectors)`.
    vectors: float [S, D], embeddings of the sections, which the critic reads.
    sections: names, [S].
    phrases: section -> what a hint for it may say.
    embed_fn: texts -> vectors [n, D], those of the sections too.

  Returns:
    None if no phrase gains anything.

  Raises:
    ValueError: shapes do not fit, or a gradient is not finite.
  """
  gradient, vectors = np.asarray(gradient), np.asarray(vectors)
  is_usable = gradient.shape == vectors.shape and gradient.ndim == 2
  if not is_usable or len(gradient) != len(sections):
    raise ValueError(
      f'gradient {gradient.shape} and vectors {vectors.shape} for '
      f'{len(sections)} sections: expected [{len(sections)}, D] of both'
    )
  if not np.isfinite(gradient).all():
    raise ValueError('the gradient of the critic is not finite')
  rows = [
    (place, phrase)
    for place, name in enumerate(sections)
    for phrase in phrases.get(name, ())
  ]
  if not rows:
    return None
  places = [place for place, _ in rows]
  steps = np.asarray(embed_fn([text for _, text in rows])) - vectors[places]
  gains = np.sum(gradient[places] * steps, axis=1)
  best = int(gains.argmax())
  if not gains[best] > 0:
    return None
  place, phrase = rows[best]
  return Hint(phrase, sections[place], float(gains[best]))


def clusters(vectors: np.ndarray, similarity: float = 0.6) -> np.ndarray:
  """Groups vectors by average linkage of their cosine distance; int [N].

  Args:
    vectors: float [N, D].
    similarity: mean cosine of two groups from which on they are one.
  """
  if len(vectors) < 2:
    return np.zeros(len(vectors), int)
  # Imported here, since it takes half a second that few need.
  from scipy.cluster import hierarchy

  distance = 1.0 - cosines(vectors)
  pairs = distance[np.triu_indices(len(vectors), k=1)]
  tree = hierarchy.linkage(np.maximum(pairs, 0.0), 'average')
  return hierarchy.fcluster(tree, 1.0 - similarity, 'distance') - 1


def from_comments(
  comments: Sequence[str],
  embed_fn: EmbedFn,
  *,
  weights: Sequence[float] | None = None,
  about: Mapping[str, str] = ABOUT,
  similarity: float = 0.6,
) -> Hint | None:
  """Returns what most people say in the words of the one in their middle.

  The section is the one whose description is nearest to that comment.

  Args:
    comments: what people wrote; blank ones do not count.
    embed_fn: texts -> vectors [n, D].
    weights: how much each counts, 0 or more: 1 - score, say, so that those
      who were not content are heard. All alike by default.
    about: section -> what stands there.
    similarity: see `clusters`.

  Returns:
    None if nobody has said anything that counts.
  """
  counts = np.ones(len(comments)) if weights is None else np.asarray(weights)
  if counts.shape != (len(comments),) or not (counts >= 0).all():
    raise ValueError(
      f'weights={weights}: expected {len(comments)} numbers of 0 or more'
    )
  said = [i for i, text in enumerate(comments) if text.strip() and counts[i]]
  if not said or not about:
    return None
  texts, counts = [comments[i].strip() for i in said], counts[said]
  vectors = np.asarray(embed_fn(texts))
  groups = clusters(vectors, similarity)
  totals = np.bincount(groups, counts)
  group = np.flatnonzero(groups == totals.argmax())
  near = cosines(vectors[group]) @ counts[group]
  medoid = group[near.argmax()]
  names = list(about)
  described = np.asarray(embed_fn([f'{n}: {about[n]}' for n in names]))
  to_sections = cosines(np.vstack([vectors[medoid], described]))[0, 1:]
  section = names[int(to_sections.argmax())]
  return Hint(texts[medoid], section, float(totals.max()))
