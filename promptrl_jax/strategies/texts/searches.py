"""The table of searches, and how one is played."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from promptrl_jax.registry import Registry
from promptrl_jax.strategies.texts import best_of_n, evolve, gepa
from promptrl_jax.strategies.texts.journal import Journal
from promptrl_jax.strategies.texts.pool import (
  Pool,
)
from promptrl_jax.strategies.texts.requests import (
  Ended,
  Evaluate,
  Proposal,
  Propose,
  Search,
  Seen,
)


@dataclasses.dataclass(frozen=True)
class TextSearch:
  """A way to search.

  Attributes:
    config: dataclass of its settings.
    search: (pool, settings) -> requests; ends by raising `Ended`.
    price: (pool, settings) -> calls at most for one candidate in the pool.
  """

  config: type
  search: Callable[[Pool, Any], Search]
  price: Callable[[Pool, Any], int]

  def candidates(self, pool: Pool, config: Any) -> int:
    """How many candidates the budget buys beside the start text, at least."""
    start = pool.each * len(pool.validation)
    return max(0, (pool.calls_left - start) // self.price(pool, config))


SEARCHES: Registry[TextSearch] = Registry('search')
SEARCHES.register('gepa', TextSearch(gepa.GepaConfig, gepa.search, gepa.price))
SEARCHES.register(
  'best_of_n',
  TextSearch(best_of_n.BestOfNConfig, best_of_n.search, best_of_n.price),
)
SEARCHES.register(
  'evolve', TextSearch(evolve.EvolveConfig, evolve.search, evolve.price)
)


def until_ended(search: Search) -> Search:
  """Goes through a search; returns the reason for which it ended."""
  try:
    yield from search
  except Ended as end:
    return str(end)
  return ''


def play(
  search: Search,
  propose: Callable[[Sequence[Propose]], Sequence[Proposal]],
  evaluate: Callable[[Sequence[Evaluate]], Sequence[Seen]],
  journal: Journal,
  at_once: int = 0,
) -> Any:
  """Answers the requests of a search to its end.

  Args:
    search: yields batches of requests.
    propose: has texts written.
    evaluate: scores them.
    journal: answers what was answered before, and keeps what is new.
    at_once: evaluations between two savings of the journal; 0: a batch.

  Returns:
    What the search returns.
  """
  answers: Any = None
  while True:
    try:
      requests = search.send(answers)
    except StopIteration as end:
      return end.value
    if isinstance(requests[0], Propose):
      answers = journal.answer(requests, propose)
    else:
      answers = journal.answer(requests, evaluate, at_once)
