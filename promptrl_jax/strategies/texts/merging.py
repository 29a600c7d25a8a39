"""Merges of GEPA: one text of two candidates from different branches.

Agrawal et al. 2025, arXiv 2507.19457, section on system-aware merge. With one
text there are no parts to recombine, so that a model writes it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection

import numpy as np

from promptrl_jax.strategies.texts import pareto
from promptrl_jax.strategies.texts.pool import Pool
from promptrl_jax.strategies.texts.requests import (
  MERGE,
  Parent,
  Propose,
  Search,
  failure,
  total,
)


def draw_pair(
  pool: Pool, tried: Collection[tuple[int, int]], rng: np.random.Generator
) -> tuple[int, int] | None:
  """Draws two candidates of the front to merge; None if there are none.

  They come from a common ancestor that is not better than either, none is the
  other's ancestor, and they were not tried before. `rng` is consumed.
  """
  means = [candidate.mean for candidate in pool.candidates]
  above = {k: pool.ancestors(k) for k in pareto.front(pool.scores)}
  pairs = [
    (i, j)
    for i, j in itertools.combinations(above, 2)
    if (i, j) not in tried
    and i not in above[j]
    and j not in above[i]
    and any(means[a] <= min(means[i], means[j]) for a in above[i] & above[j])
  ]
  if not pairs:
    return None
  return pairs[rng.integers(len(pairs))]


def merge(
  pool: Pool, pair: tuple[int, int], count: int, rng: np.random.Generator
) -> Search:
  """Merges two candidates; returns whether the new text was taken.

  It is scored on `count` search examples first. `rng` is consumed.
  """
  examples = deciding_examples(pool.scores[list(pair)], count, rng)
  shown = [pool.validation[i] for i in examples]
  pool.check_affords(1 + pool.each * len(pool.validation))
  parents = tuple(Parent(pool.candidates[k].text) for k in pair)
  (proposal,) = yield from pool.propose(
    [Propose(MERGE, parents, pool.draw_seed(0))]
  )
  before = [
    math.fsum(pool.candidates[k].scores[i] for i in examples) for k in pair
  ]
  why, after, taken = proposal.refused, None, None
  if not why:
    (seen,) = yield from pool.look([(proposal.text, shown)])
    why = failure(seen)
    if not why:
      after = total(seen)
      if after < max(before):
        why = 'worse than its better parent'
  if not why:
    why = yield from pool.admit(proposal.text, pair)
    if not why:
      why, taken = 'as good as its better parent', len(pool.candidates) - 1
  pool.record(
    MERGE,
    pair,
    proposal.text,
    why,
    candidate=taken,
    examples=shown,
    before=before,
    after=after,
  )
  return taken is not None


def deciding_examples(
  scores: np.ndarray, count: int, rng: np.random.Generator
) -> list[int]:
  """Draws examples that two candidates are compared on.

  A third each of those on which the first, the second, and neither is better;
  the rest, where there are too few of a kind, from all others.

  Args:
    scores: float [2, examples].
    count: how many are wanted.
    rng: is consumed.
  """
  first, second = scores
  kinds = [first > second, second > first, first == second]
  chosen: list[int] = []
  for kind in kinds:
    room = min(-(-count // 3), count - len(chosen))
    places = rng.permutation(np.flatnonzero(kind))[:room]
    chosen += places.tolist()
  others = [i for i in range(len(first)) if i not in chosen]
  chosen += rng.permutation(others)[: count - len(chosen)].astype(int).tolist()
  return chosen
