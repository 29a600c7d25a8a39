"""What a candidate costs each rival of the line-up, for the line before a run.

A candidate is a program; see `llm/preflight.py`. Registered strategies say it
where they are registered.
"""

from __future__ import annotations

from promptrl_jax.envs.editing.config import EditingConfig
from promptrl_jax.evaluation import open_loop
from promptrl_jax.llm.preflight import CandidateCost
from promptrl_jax.operators import FALLBACK, OPERATORS


def of_operators(config: EditingConfig) -> CandidateCost:
  """The cost at most where a policy or a list may take any operator."""
  return CandidateCost(max(1, *(OPERATORS[n].calls for n in config.actions)))


def of_rivals(config: EditingConfig) -> dict[str, CandidateCost]:
  """The costs of `play.rivals`, by name."""
  found = {
    operator.rival: CandidateCost(
      operator.calls, most=1 if operator.name == FALLBACK else None
    )
    for operator in map(OPERATORS.__getitem__, config.actions)
    if operator.rival
  }
  again = CandidateCost(OPERATORS[FALLBACK].calls)
  return found | {'greedy_first': again, 'random': of_operators(config)}


def of_chosen(config: EditingConfig) -> dict[str, CandidateCost]:
  """The costs of what is chosen on validation, `open_loop.rival_names`."""
  any_list = of_operators(config)
  by_hand = sum(OPERATORS[name].calls - 1 for name in open_loop.HAND_RULE)
  lists = {'hand_rule': CandidateCost(fixed=by_hand)}
  lists |= dict.fromkeys(open_loop.LISTS, any_list)
  sampling = CandidateCost()  # The other ones only sample.
  return {
    name: lists.get(name, sampling) for name in open_loop.rival_names(config)
  }
