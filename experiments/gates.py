"""Gates of a comparison: marks that a strategy has to reach, or the job fails.

No flags here.
"""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Gate:
  """The least that the interval of a strategy's pass@1 may begin with, in %."""

  strategy: str
  mark: float


def read(text):
  """Reads STRATEGY:MARK."""
  name, _, mark = text.rpartition(':')
  try:
    gate = Gate(name, float(mark))
  except ValueError:
    gate = Gate('', 0.0)
  if not gate.strategy or not 0 <= gate.mark <= 100:
    raise ValueError(
      f'--gate={text}: expected STRATEGY:MARK with a mark in percent, such as '
      'ppo:70'
    )
  return gate


def check(gates, cells, budgets):
  """A line for each gate that is not passed at the largest budget."""
  last = max(budgets)
  scores = {c['strategy']: c['pass'] for c in cells if c['budget'] == last}
  failed = []
  for gate in gates:
    score = scores.get(gate.strategy)
    if score is None:
      failed.append(f'gate: {gate.strategy} has not played at B={last} yet')
    elif 100 * score['low'] < gate.mark:
      failed.append(
        f'gate: {gate.strategy} at B={last} solves '
        f'{100 * score["mean"]:.1f} % with an interval from '
        f'{100 * score["low"]:.1f}, below {gate.mark:g}'
      )
  return failed
