"""The rivals that are chosen on validation: lists, temperatures, examples.

An open-loop list says which operator comes first, second, ...; it is blind to
everything but the stop when the visible tests pass. How they are chosen:
`open_loop_search.py`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from promptrl_jax.envs.editing.config import EditingConfig
from promptrl_jax.evaluation.play import Entrant, rivals
from promptrl_jax.evaluation.selection import Selected
from promptrl_jax.llm.ask import AskConfig
from promptrl_jax.operators import MOST_EXAMPLES
from promptrl_jax.strategies import base, policies
from promptrl_jax.strategies.fewshot import few_shots

List = tuple[str, ...]
# `semantic, reset_prompt, repair`: what a reader of the results would try.
HAND_RULE = ('keep', 'semantic', 'reset_prompt', 'repair')
# Rivals that play the lists that are found.
LISTS = ('best_open_loop', 'single_list')


@dataclasses.dataclass(frozen=True)
class Found:
  """What was chosen on validation.

  Attributes:
    best: list for each budget.
    single: one list for all budgets, the best in their mean.
    scores: pass rate on validation of `best`, by budget; optimistic, as it was
      searched there.
    calls: model calls that the search of lists paid for.
    temperatures: the best one of each rival that only samples.
    temperature_calls: model calls that each of them paid for.
    examples: how many each of them shows that has been given a choice.
    means: mean over the budgets of the pass rate on validation of `single`, by
      the name that it plays under, and of the tuned rivals, by theirs.
  """

  best: Mapping[int, List] = dataclasses.field(default_factory=dict)
  single: List = ()
  scores: Mapping[int, float] = dataclasses.field(default_factory=dict)
  calls: int = 0
  temperatures: Mapping[str, float] = dataclasses.field(default_factory=dict)
  temperature_calls: Mapping[str, int] = dataclasses.field(default_factory=dict)
  examples: Mapping[str, int] = dataclasses.field(default_factory=dict)
  means: Mapping[str, float] = dataclasses.field(default_factory=dict)

  @classmethod
  def from_json(cls, saved: Mapping[str, Any]) -> Found:
    """Reads what `dataclasses.asdict` wrote; JSON has no whole-number keys."""
    by_budget = {
      name: {int(b): value for b, value in saved[name].items()}
      for name in ('best', 'scores')
    }
    return cls(**{**saved, **by_budget})

  def with_lists(self, lists: Found) -> Found:
    """Returns the lists of another search with the temperatures of this one."""
    return dataclasses.replace(
      lists,
      temperatures=self.temperatures,
      temperature_calls=self.temperature_calls,
      examples=self.examples,
      means={**self.means, **lists.means},
    )

  def selected(self, budgets: Sequence[int]) -> list[Selected]:
    """What was chosen by a score, for the budgets that are played."""
    budgets = tuple(sorted(budgets))
    best = [
      Selected(LISTS[0], (budget,), self.scores[budget])
      for budget in budgets
      if budget in self.best
    ]
    # These are means over the budgets of the search, which may be others.
    is_same = budgets == tuple(sorted(self.best)) or not self.best
    means = self.means if is_same else {}
    return best + [
      Selected(name, budgets, mean) for name, mean in means.items()
    ]

  def entrants(
    self, editing: EditingConfig, ask: AskConfig
  ) -> dict[str, Entrant]:
    """The rivals that play what was chosen."""

    chosen = {}
    if self.best:
      lists = {b: strategy(names, editing) for b, names in self.best.items()}
      played = base.ByBudget(lists), strategy(self.single, editing)
      chosen = {
        name: Entrant.of(play, optimisation_calls=self.calls)
        for name, play in zip(LISTS, played, strict=True)
      }
    if set(HAND_RULE) <= set(editing.actions):
      chosen['hand_rule'] = Entrant.of(strategy(HAND_RULE, editing))
    for name, temperature in self.temperatures.items():
      by_count = sampling_rivals(editing)[name]
      chosen[tuned(name)] = dataclasses.replace(
        by_count[self.examples.get(name, 0)],
        fixed=False,
        ask=dataclasses.replace(ask, sample_temperature=temperature),
        optimisation_calls=self.temperature_calls[name],
      )
    return chosen

  def facts(self) -> dict[str, str]:
    """What was chosen in words, for the header of a report."""
    facts = {
      f'best list, B={budget}': f'{", ".join(names)} '
      f'({100 * self.scores[budget]:.1f} % of validation)'
      for budget, names in self.best.items()
    }
    if self.single:
      facts['single list'] = ', '.join(self.single)
    for name, temperature in self.temperatures.items():
      facts[f'temperature of {tuned(name)}'] = f'{temperature:g}'
    for name, count in self.examples.items():
      facts[f'examples of {tuned(name)}'] = str(count)
    return facts


def rival_names(config: EditingConfig) -> tuple[str, ...]:
  """Names of all rivals that can play what is chosen."""
  return (*LISTS, 'hand_rule', *map(tuned, sampling_rivals(config)))


def tuned(name: str) -> str:
  """Name of a rival whose temperature is chosen."""
  return f'{name}_tuned'


def sampling_rivals(config: EditingConfig) -> dict[str, dict[int, Entrant]]:
  """Rivals that only sample, by name and by the number of worked examples."""
  fixed = rivals(config)
  found = {
    name: {0: fixed[name]}
    for name in ('best_of_b', 'greedy_first')
    if name in fixed
  }
  found['fewshot'] = {
    count: Entrant.of(base.TextStrategy(few_shots(count)))
    for count in range(1, MOST_EXAMPLES + 1)
  }
  return found


def strategy(operators: Sequence[str], config: EditingConfig) -> base.Strategy:
  """The list as a strategy; resamples where it ends."""
  policy = policies.open_loop(operators, config.actions)
  return base.OverOperators(policy, config)
