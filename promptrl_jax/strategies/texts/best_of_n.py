"""Best of n: rewrites of the start text, the best of which is kept.

The rival of every search that claims to learn from what it sees.
"""

from __future__ import annotations

import dataclasses

from promptrl_jax.strategies.texts.pool import (
  Pool,
)
from promptrl_jax.strategies.texts.requests import (
  MERGE,
  REWRITE,
  Parent,
  Propose,
  Search,
)


@dataclasses.dataclass(frozen=True)
class BestOfNConfig:
  """Settings; as many rewrites are drawn as the budget pays for.

  Attributes:
    batch: rewrites that are asked for at once.
  """

  batch: int = 4

  def __post_init__(self):
    if self.batch < 1:
      raise ValueError(f'batch={self.batch}: expected 1 or more')


def price(pool: Pool, config: object = None) -> int:
  """Calls of one candidate: it is written and scored on all examples."""
  del config
  return 1 + pool.each * len(pool.validation)


def search(pool: Pool, config: BestOfNConfig) -> Search:
  """Rewrites the start text until the budget is spent."""
  yield from pool.start()
  while True:
    count = min(config.batch, pool.calls_left // price(pool))
    pool.check_affords(max(1, count) * price(pool))
    yield from breed(pool, [(0,)] * count)


def breed(pool: Pool, families: list[tuple[int, ...]]) -> Search:
  """Writes and scores one text for each tuple of parents; returns places.

  One parent is rewritten, two are merged. What cannot be scored is left out.
  """
  kinds = [MERGE if len(parents) > 1 else REWRITE for parents in families]
  proposals = yield from pool.propose(
    [
      Propose(
        kind,
        tuple(Parent(pool.candidates[k].text) for k in parents),
        pool.draw_seed(i),
      )
      for i, (kind, parents) in enumerate(zip(kinds, families, strict=True))
    ]
  )
  # All at once first, so that a metric may ask its model in one batch.
  yield from pool.look(
    [(p.text, pool.validation) for p in proposals if not p.refused]
  )
  places = []
  for kind, parents, proposal in zip(kinds, families, proposals, strict=True):
    why = proposal.refused or (yield from pool.admit(proposal.text, parents))
    place = None
    if not why:
      place = len(pool.candidates) - 1
      places.append(place)
    pool.record(kind, parents, proposal.text, why or 'scored', candidate=place)
  return places
