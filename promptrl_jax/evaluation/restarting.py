"""A strategy that starts anew from the problem after so many calls.

A controller that was trained with few calls meets, with more of them, counts
that it never saw. Restarted, it plays episodes of the length that it knows,
with new draws.
"""

from __future__ import annotations

import dataclasses

from promptrl_jax.evaluation.play import Entrant
from promptrl_jax.strategies.portfolio import Portfolio, restarts


def label(strategy: str) -> str:
  """Name of a strategy that is restarted."""
  return f'{strategy}_restarted'


def entrant(name: str, alone: Entrant, every: int) -> Entrant:
  """The strategy, restarted after `every` calls."""
  return dataclasses.replace(
    alone,
    make=lambda seed: Portfolio(
      {name: alone.make(seed)}, restarts(name, every)
    ),
    single=False,
    fixed=False,
  )
