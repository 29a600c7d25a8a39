"""Which of the programs of several strategies is handed over; no flags here."""

from __future__ import annotations

import dataclasses

from promptrl_jax.evaluation import episodes


@dataclasses.dataclass(frozen=True)
class Best:
  """The chosen program, by its strategy and its step in the trace."""

  strategy: str
  step: int
  code: str
  visible: tuple[bool, ...]


def choose(played):
  """The program that passes most visible tests, of equals the cheapest.

  Where a strategy chooses among its programs, that is the one it chose.

  Raises:
    ValueError: no strategy has written a program.
  """
  programs = []
  for name, one in played.items():
    calls, chosen = 0, episodes.chosen(one.trace)
    for number, step in enumerate(one.trace):
      calls += step['cost']
      if step['code'] and chosen in (None, step['code']):
        best = Best(name, number, step['code'], tuple(step['visible']))
        programs.append((-sum(step['visible']), calls, len(programs), best))
  if not programs:
    errors = {name: one.details[0].error for name, one in played.items()}
    raise ValueError(
      f'no strategy has written a program ({errors}): expected a coder that '
      'answers with one, see --config.ask.template'
    )
  return min(programs, key=lambda program: program[:3])[3]
