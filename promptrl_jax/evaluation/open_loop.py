"""The rivals that are chosen on validation: lists, temperatures, examples.

An open-loop list says which operator comes first, second, ...; it is blind to
everything but the stop when the visible tests pass. It is found by dynamic
programming over calls: the best lists of c calls are the best ones of fewer
calls with one more operator, a beam of them. Since requests are cached, a list
costs the calls of its last operator alone.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from promptrl_jax.envs.editing.config import EditingConfig
from promptrl_jax.evaluation.play import Entrant, Game, LineUp, rivals
from promptrl_jax.evaluation.selection import Selected
from promptrl_jax.llm.ask import AskConfig
from promptrl_jax.operators import MOST_EXAMPLES, OPERATORS
from promptrl_jax.strategies import base, policies
from promptrl_jax.strategies.fewshot import few_shots
from promptrl_jax.types import Task

List = tuple[str, ...]
_Name = TypeVar('_Name')
# `semantic, reset_prompt, repair`: what a reader of the results would try.
HAND_RULE = ('keep', 'semantic', 'reset_prompt', 'repair')
# Rivals that play the lists that are found.
LISTS = ('best_open_loop', 'single_list')


@dataclasses.dataclass(frozen=True)
class SearchConfig:
  """Settings of what is chosen on validation.

  Attributes:
    beam: lists that are kept for each number of calls.
    seeds: runs that a list is scored by.
    problems: first N validation problems; 0 for all.
    temperatures: of samples, for the rivals that do nothing else.
  """

  beam: int = 2
  seeds: int = 3
  problems: int = 0
  temperatures: tuple[float, ...] = (0.6, 0.8, 1.0, 1.2)

  def __post_init__(self):
    for name in ('beam', 'seeds'):
      if getattr(self, name) < 1:
        raise ValueError(f'{name}={getattr(self, name)}: expected at least 1')


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
      chosen[_tuned(name)] = dataclasses.replace(
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
      facts[f'temperature of {_tuned(name)}'] = f'{temperature:g}'
    for name, count in self.examples.items():
      facts[f'examples of {_tuned(name)}'] = str(count)
    return facts


def rival_names(config: EditingConfig) -> tuple[str, ...]:
  """Names of all rivals that can play what is chosen."""
  return (*LISTS, 'hand_rule', *map(_tuned, sampling_rivals(config)))


def _tuned(name: str) -> str:
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


def search(
  line_up: LineUp,
  tasks: Sequence[Task],
  editing: EditingConfig,
  config: SearchConfig,
  *,
  protocol: str,
  budgets: Sequence[int],
  seed: int = 0,
  progress: Callable[[Iterable[int]], Iterable[int]] = iter,
) -> Found:
  """Searches lists for each budget, and one for all of them.

  Args:
    line_up: plays; with cached models.
    tasks: validation tasks.
    editing: operators that a list may hold.
    config: width of the search.
    protocol: which tests are visible.
    budgets: those that a list is wanted for.
    seed: of the first run.
    progress: wraps the numbers of calls for a progress bar.
  """
  tasks = tasks[: config.problems or None]
  where = {'protocol': protocol, 'seed': seed}
  score = functools.partial(_score, line_up, tasks, config, **where)
  with line_up.counting() as paid:
    beams = search_lists(
      line_up,
      tasks,
      editing,
      config,
      budgets=budgets,
      progress=progress,
      **where,
    )
    tried = {operators for b in budgets for _, operators in beams[b]}
    mean = score(
      {names: Entrant.of(strategy(names, editing)) for names in sorted(tried)},
      budgets,
    )
    calls = paid()
  return Found(
    best={b: beams[b][0][1] for b in budgets},
    single=max(mean, key=lambda operators: mean[operators]),
    scores={b: beams[b][0][0] for b in budgets},
    calls=calls,
    means={LISTS[1]: max(mean.values())},
  )


def tune(
  found: Found,
  line_up: LineUp,
  tasks: Sequence[Task],
  editing: EditingConfig,
  ask: AskConfig,
  config: SearchConfig,
  *,
  protocol: str,
  budgets: Sequence[int],
  seed: int = 0,
  without: Collection[str] = (),
) -> Found:
  """Adds the temperatures and numbers of examples that are not found yet.

  Examples are shown where the line-up has some. Arguments are those of
  `search`; `ask` says how requests are sampled but for the temperature,
  `without` which rivals are not wanted.
  """
  tasks = tasks[: config.problems or None]
  library = (line_up.options or {}).get('examples')
  for name, by_count in sampling_rivals(editing).items():
    is_possible = 0 in by_count or library is not None
    is_done = name in found.temperatures
    if is_done or not is_possible or _tuned(name) in without:
      continue
    sampled = {
      (count, t): dataclasses.replace(
        entrant, ask=dataclasses.replace(ask, sample_temperature=t)
      )
      for (count, entrant), t in itertools.product(
        by_count.items(), config.temperatures
      )
    }
    with line_up.counting() as paid:
      means = _score(
        line_up, tasks, config, sampled, budgets, protocol=protocol, seed=seed
      )
      calls = paid()
    count, temperature = max(means, key=lambda key: means[key])
    examples = {name: count} if len(by_count) > 1 else {}
    found = dataclasses.replace(
      found,
      temperatures={**found.temperatures, name: temperature},
      temperature_calls={**found.temperature_calls, name: calls},
      examples={**found.examples, **examples},
      means={**found.means, _tuned(name): means[count, temperature]},
    )
  return found


def search_lists(
  line_up: LineUp,
  tasks: Sequence[Task],
  editing: EditingConfig,
  config: SearchConfig,
  *,
  protocol: str,
  budgets: Sequence[int],
  seed: int = 0,
  progress: Callable[[Iterable[int]], Iterable[int]] = iter,
) -> dict[int, list[tuple[float, List]]]:
  """Returns the best lists of c calls with their scores, best first, by c."""
  count = config.seeds, len(tasks)
  start = _Played((), np.zeros(count, bool), np.ones(count, bool))
  beams = {0: [start]}
  for calls in progress(range(1, max(budgets) + 1)):
    longer = {
      (*played.operators, name): played
      for name in editing.actions
      if 0 < OPERATORS[name].calls <= calls
      for played in beams[calls - OPERATORS[name].calls]
      if _has_effect(played.operators, name)
    }
    extended = _extend(
      line_up, tasks, editing, longer, calls, protocol=protocol, seed=seed
    )
    # Of equal scores the first one stays, which is in the order of the actions.
    beams[calls] = sorted(extended, key=lambda x: -x.score)[: config.beam]
  return {
    calls: [(played.score, played.operators) for played in beam]
    for calls, beam in beams.items()
  }


@dataclasses.dataclass(frozen=True, eq=False)
class _Played:
  """A list that was played; arrays are bool [seeds, tasks].

  Attributes:
    passed: the submission passes all tests.
    is_open: the visible tests are not passed, so that a longer list goes on.
  """

  operators: List
  passed: np.ndarray
  is_open: np.ndarray

  @property
  def score(self) -> float:
    return float(self.passed.mean())


def _extend(
  line_up: LineUp,
  tasks: Sequence[Task],
  editing: EditingConfig,
  longer: Mapping[List, _Played],
  calls: int,
  *,
  protocol: str,
  seed: int,
) -> list[_Played]:
  """Plays longer lists on the tasks that the shorter ones left open.

  Draws depend on the seed, the task and the calls made, so that the others
  would end as they did.

  Args:
    longer: by its operators, the list that each makes longer.
  """
  rows, games = [], []
  for operators, before in longer.items():
    played = _Played(operators, before.passed.copy(), before.is_open.copy())
    entrant = Entrant.of(strategy(operators, editing))
    for row, left in enumerate(before.is_open):
      places = np.flatnonzero(left)
      chosen = [tasks[int(place)] for place in places]
      rows.append((played, row, places))
      games.append(Game(entrant, chosen, protocol, calls, seed + row))
  for (played, row, places), run in zip(
    rows, line_up.run_all(games), strict=True
  ):
    played.passed[row, places] = run.passed
    solved = [r['row'] for r in run.trace if r['visible_passed']]
    played.is_open[row, places[solved]] = False
  return list(dict.fromkeys(played for played, _, _ in rows))


def _score(
  line_up: LineUp,
  tasks: Sequence[Task],
  config: SearchConfig,
  entrants: Mapping[_Name, Entrant],
  budgets: Sequence[int],
  *,
  protocol: str,
  seed: int,
) -> dict[_Name, float]:
  """Pass rates, mean over the budgets and the seeds of the search."""
  games = [
    Game(entrant, tasks, protocol, budget, run)
    for entrant in entrants.values()
    for budget in budgets
    for run in range(seed, seed + config.seeds)
  ]
  passed = [run.passed.mean() for run in line_up.run_all(games)]
  means = np.reshape(passed, (len(entrants), -1)).mean(axis=1)
  return dict(zip(entrants, means.tolist(), strict=True))


def _has_effect(operators: List, name: str) -> bool:
  """Whether the operator can act after those of the list."""
  if name == 'repair':
    return bool(operators)
  if name in ('reset_prompt', 'undo'):
    return bool({'lexical', 'semantic'} & set(operators))
  return True
