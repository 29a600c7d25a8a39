"""GEPA: reflective search along a Pareto front over examples.

Agrawal et al. 2025, GEPA: Reflective Prompt Evolution Can Outperform
Reinforcement Learning, arXiv 2507.19457, algorithms 1 and 2, for a system of
one text.

  front ──> parent, minibatch ──> what became of it ──> a model reflects
    ^                                                           │ new text
    └── scored on all search examples <── is better there? <────┘

A parent is drawn with probability proportional to the examples on which it is
best. A new text that is better than its parent on a minibatch is scored on all
search examples. After one was taken, two candidates of the front that come from
different branches are merged: a model writes one text of both, which is taken
if it is as good as the better one on examples on which they differ.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence

import numpy as np

from promptrl_jax.strategies.texts import merging, pareto
from promptrl_jax.strategies.texts.pool import (
  Pool,
)
from promptrl_jax.strategies.texts.requests import (
  REFLECT,
  Ended,
  Parent,
  Propose,
  Search,
  Seen,
  failure,
  total,
)

_PARENTS, _BATCHES, _MERGES = range(3)  # What random numbers are drawn for.
# Looks in a row that ask for nothing, since nothing failed in their minibatch.
_MOST_IDLE = 100


@dataclasses.dataclass(frozen=True)
class GepaConfig:
  """Settings of the search; the defaults are those of the original.

  Attributes:
    minibatch: examples that a reflection is shown.
    proposals: reflections for each look at all search examples, each with a
      parent and a minibatch of its own; the one that gains most is scored.
    merges: texts of two parents that are taken at most.
    merge_examples: search examples that decide about a merge.
    perfect: score that cannot be exceeded: a minibatch where all have it
      teaches nothing.
  """

  minibatch: int = 3
  proposals: int = 1
  merges: int = 5
  merge_examples: int = 5
  perfect: float = math.inf

  def __post_init__(self):
    for name in ('minibatch', 'proposals', 'merge_examples'):
      if getattr(self, name) < 1:
        raise ValueError(f'{name}={getattr(self, name)}: expected 1 or more')
    if self.merges < 0:
      raise ValueError(f'merges={self.merges}: expected 0 (none) or more')


def search(pool: Pool, config: GepaConfig) -> Search:
  """Searches until the budget or the pool says that it is over."""
  yield from pool.start()
  due, merged, drawn, idle = 0, 0, 0, 0
  is_fresh, tried = False, set[tuple[int, int]]()
  for look in itertools.count():
    if pool.candidates[pool.best].mean >= config.perfect:
      raise Ended('a text is perfect on all search examples')
    calls = pool.calls
    if is_fresh and due:
      is_fresh = False
      rng = _draws(pool.seed, look, _MERGES)
      pair = merging.draw_pair(pool, tried, rng)
      if pair:
        tried.add(pair)
        was_taken = yield from merging.merge(
          pool, pair, config.merge_examples, rng
        )
        due, merged = due - was_taken, merged + was_taken
        continue
    is_fresh = yield from _reflect(pool, config, look, drawn)
    drawn += config.proposals
    due += is_fresh and merged < config.merges
    idle = idle + 1 if pool.calls == calls else 0
    if idle == _MOST_IDLE:
      raise Ended('nothing fails on the examples that may be shown')


def price(pool: Pool, config: GepaConfig) -> int:
  """Calls at most of one look at all search examples."""
  batch = min(config.minibatch, len(pool.train))
  # What is known of search examples is not paid again.
  is_known = set(pool.train) <= set(pool.validation)
  before, rest = (0, batch) if is_known else (batch, 0)
  return config.proposals * (1 + pool.each * (before + batch)) + pool.each * (
    len(pool.validation) - rest
  )


def minibatch(
  examples: Sequence[int], size: int, number: int, seed: int
) -> list[int]:
  """Returns the minibatch of a number: epoch after epoch in a new order.

  The last one of an epoch is filled up from its beginning.
  """
  size = min(size, len(examples))
  per_epoch = -(-len(examples) // size)
  epoch, place = divmod(number, per_epoch)
  order = _draws(seed, epoch, _BATCHES).permutation(len(examples))
  places = np.arange(place * size, (place + 1) * size) % len(examples)
  return [examples[i] for i in order[places]]


@dataclasses.dataclass(frozen=True)
class _Trial:
  """A parent, its minibatch, and what became of it there."""

  parent: int
  examples: list[int]
  before: list[Seen]


def _reflect(pool: Pool, config: GepaConfig, look: int, drawn: int) -> Search:
  """One look; returns whether a text was taken."""
  trials = yield from _trials(pool, config, look, drawn)
  if not trials:
    return False
  proposals = yield from pool.propose(
    [
      Propose(REFLECT, (_parent(pool, trial),), pool.draw_seed(i))
      for i, trial in enumerate(trials)
    ]
  )
  usable = [i for i, proposal in enumerate(proposals) if not proposal.refused]
  seen = yield from pool.look(
    [(proposals[i].text, trials[i].examples) for i in usable]
  )
  after = dict(zip(usable, seen, strict=True))
  gains = {
    i: total(row) - total(trials[i].before)
    for i, row in after.items()
    if not failure(row)
  }
  best = max(gains, key=lambda i: gains[i], default=None)
  was_taken = False
  for i, (trial, proposal) in enumerate(zip(trials, proposals, strict=True)):
    taken, why = None, proposal.refused or failure(after[i])
    if not why and gains[i] <= 0:
      why = 'not better on its minibatch'
    elif not why and i != best:
      why = 'better on its minibatch, but another one gains more'
    elif not why:
      why = yield from pool.admit(proposal.text, (trial.parent,))
      if not why:
        taken, was_taken = len(pool.candidates) - 1, True
    pool.record(
      REFLECT,
      (trial.parent,),
      proposal.text,
      why or 'better on its minibatch',
      candidate=taken,
      examples=trial.examples,
      before=(total(trial.before),),
      after=total(after[i]) if i in gains else None,
    )
  return was_taken


def _trials(pool: Pool, config: GepaConfig, look: int, drawn: int) -> Search:
  """Draws parents and minibatches; returns those on which something failed."""
  weights = pareto.weights(pool.scores)
  shares = np.array(list(weights.values()))
  parents = _draws(pool.seed, look, _PARENTS).choice(
    list(weights), config.proposals, p=shares / shares.sum()
  )
  jobs = [
    (
      pool.candidates[parent].text,
      minibatch(pool.train, config.minibatch, drawn + i, pool.seed),
    )
    for i, parent in enumerate(parents)
  ]
  pool.check_affords(_price(pool, jobs))
  rows = yield from pool.look(jobs)
  if error := next(filter(None, map(failure, rows)), ''):
    raise Ended(f'a candidate cannot be scored on what it is shown: {error}')
  return [
    _Trial(int(parent), examples, before)
    for parent, (_, examples), before in zip(parents, jobs, rows, strict=True)
    if any(one.score < config.perfect for one in before)
  ]


def _parent(pool: Pool, trial: _Trial) -> Parent:
  seen = tuple(zip(trial.examples, trial.before, strict=True))
  return Parent(pool.candidates[trial.parent].text, seen)


def _price(pool: Pool, jobs: Sequence[tuple[str, Sequence[int]]]) -> int:
  """Calls that a look takes at most."""
  known = sum(pool.price(text, batch) for text, batch in jobs)
  proposed = sum(1 + pool.each * len(batch) for _, batch in jobs)
  rest = pool.each * max(
    len(set(pool.validation).difference(batch)) for _, batch in jobs
  )
  return known + proposed + rest


def _draws(seed: int, number: int, purpose: int) -> np.random.Generator:
  return np.random.default_rng([seed, number, purpose])
