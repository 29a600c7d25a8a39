"""How many candidates a budget of model calls buys, before the first call.

A search that tries one or two candidates is no search: a comparison at such a
budget says nothing about it, and is refused unless it is asked for.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Mapping

from promptrl_jax.llm.ledger import Price

LEAST = 3
_TOKENS = 100  # of a prompt, whose price is said


@dataclasses.dataclass(frozen=True)
class CandidateCost:
  """What a strategy pays for the programs, or texts, that it compares.

  Attributes:
    calls: of one candidate: 1 for a sample or a repair, 2 for a reflection and
      the program after it, P for a look at P proposals.
    fixed: calls for a problem before its first candidate.
    share: of all calls, rounded down, that go to something else, to tests say.
    most: candidates, whatever the budget; None for any number.
  """

  calls: int = 1
  fixed: int = 0
  share: float = 0.0
  most: int | None = None

  def __post_init__(self):
    most = 1 if self.most is None else self.most
    is_share = 0 <= self.share < 1
    if self.calls < 1 or self.fixed < 0 or most < 1 or not is_share:
      raise ValueError(
        f'{self}: expected at least 1 call per candidate, 0 or more fixed '
        'ones, a share in [0, 1) and at least 1 candidate'
      )

  def candidates(self, budget: int) -> int:
    """Returns how many candidates a budget of calls buys."""
    left = budget - self.fixed - int(budget * self.share)
    bought = max(0, left) // self.calls
    return bought if self.most is None else min(bought, self.most)

  def budget(self, candidates: int) -> int:
    """Returns the least budget that buys so many, no more than `most`."""
    sizes = itertools.count(1)
    return next(size for size in sizes if self.candidates(size) >= candidates)


def dearest(costs: Iterable[CandidateCost]) -> CandidateCost:
  """A bound for a strategy that is free to take any of others at each step."""
  listed = [CandidateCost(), *costs]
  return CandidateCost(
    max(cost.calls for cost in listed),
    max(cost.fixed for cost in listed),
    max(cost.share for cost in listed),
  )


def check(
  costs: Mapping[str, CandidateCost], budget: int, least: int = LEAST
) -> dict[str, int]:
  """Returns the candidates that a budget per problem buys for each strategy.

  Args:
    costs: of each strategy.
    budget: model calls per problem.
    least: candidates that each strategy must get, or as many as it ever has.

  Raises:
    ValueError: a strategy gets fewer; names each one and what it would take.
  """
  bought = {name: cost.candidates(budget) for name, cost in costs.items()}
  short = {}
  for name, cost in costs.items():
    wanted = least if cost.most is None else min(least, cost.most)
    if bought[name] < wanted:
      short[name] = cost.budget(wanted)
  if short:
    needs = ', '.join(
      f'{name} {bought[name]} (needs {calls} calls)'
      for name, calls in short.items()
    )
    raise ValueError(
      f'{budget} calls per problem buy fewer than {least} candidates: {needs}; '
      'raise the budget or the cap, or lower least_candidates'
    )
  return bought


def most_calls(
  costs: Iterable[CandidateCost], budgets: Iterable[int], runs: int
) -> int:
  """Returns how many calls strategies make at most at all budgets.

  What two of them ask alike counts twice, and all are taken to spend what they
  may, so that a run with a cache makes fewer, often by far.

  Args:
    costs: of each strategy.
    budgets: model calls per problem, one for each column of the table.
    runs: problems times seeds.
  """
  listed, total = list(costs), 0
  for budget in budgets:
    for cost in listed:
      if cost.most is None or cost.share:
        total += budget
      else:
        total += min(budget, cost.budget(cost.most))
  return total * runs


def describe(bought: Mapping[str, int], budget: int) -> str:
  """Returns one line: what `check` found."""
  listed = ', '.join(f'{name} {count}' for name, count in bought.items())
  return f'candidates that {budget} calls per problem buy: {listed}'


def describe_dollars(calls: int, tokens: int, prices: Iterable[Price]) -> str:
  """Returns what calls of the dearest model cost; empty if nothing.

  Prompts are not known yet, so that the dollars for each 100 tokens of one are
  said, beside those for answers of this size.
  """
  listed = list(prices)
  written = max((price.dollars(0, tokens) for price in listed), default=0.0)
  read = max((price.dollars(_TOKENS, 0) for price in listed), default=0.0)
  if not written and not read:
    return ''
  return (
    f'which cost ${calls * written:,.2f} for answers of {tokens} tokens, and '
    f'${calls * read:,.2f} for each {_TOKENS} tokens of a prompt'
  )
