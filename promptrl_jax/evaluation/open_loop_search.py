"""How the lists, temperatures and numbers of examples of rivals are chosen.

A list is found by dynamic programming over calls: the best lists of c calls are
the best ones of fewer calls with one more operator, a beam of them. Since
requests are cached, a list costs the calls of its last operator alone.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import numpy as np

from promptrl_jax.envs.editing.config import EditingConfig
from promptrl_jax.evaluation import open_loop
from promptrl_jax.evaluation.open_loop import Found, List
from promptrl_jax.evaluation.play import Entrant, Game, LineUp
from promptrl_jax.llm.ask import AskConfig
from promptrl_jax.operators import OPERATORS
from promptrl_jax.types import Task

_Setting = tuple[int, float]


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
class Validation:
  """What everything is chosen on.

  Attributes:
    line_up: plays; with cached models.
    tasks: validation tasks.
    editing: operators that a list may hold.
    config: of the search.
    protocol: which tests are visible.
  """

  line_up: LineUp
  tasks: Sequence[Task]
  editing: EditingConfig
  config: SearchConfig
  protocol: str

  @property
  def problems(self) -> Sequence[Task]:
    """The tasks that are played."""
    return self.tasks[: self.config.problems or None]


def search(
  validation: Validation,
  budgets: Sequence[int],
  progress: Callable[[Iterable[int]], Iterable[int]] = iter,
) -> Found:
  """Searches lists for each budget, and one for all of them.

  Args:
    validation: what they are chosen on.
    budgets: those that a list is wanted for.
    progress: wraps the numbers of calls for a progress bar.
  """
  with validation.line_up.counting() as paid:
    beams = search_lists(validation, budgets, progress)
    tried = {operators for b in budgets for _, operators in beams[b]}
    mean = {
      names: _score(
        validation,
        Entrant.of(open_loop.strategy(names, validation.editing)),
        budgets,
      )
      for names in sorted(tried)
    }
    calls = paid()
  return Found(
    best={b: beams[b][0][1] for b in budgets},
    single=max(mean, key=lambda operators: mean[operators]),
    scores={b: beams[b][0][0] for b in budgets},
    calls=calls,
    means={open_loop.LISTS[1]: max(mean.values())},
  )


def tune(
  found: Found,
  validation: Validation,
  budgets: Sequence[int],
  ask: AskConfig,
  without: Collection[str] = (),
  progress: Callable[[Iterable[_Setting]], Iterable[_Setting]] = iter,
) -> Found:
  """Adds the temperatures and numbers of examples that are not found yet.

  Examples are shown where the line-up has some.

  Args:
    found: what is found already.
    validation: what they are chosen on.
    budgets: those that a rival is to be good at, in the mean.
    ask: how requests are sampled but for the temperature.
    without: rivals that are not wanted.
    progress: wraps the settings of a rival, examples and temperature, for a
      progress bar.
  """
  line_up, config = validation.line_up, validation.config
  library = (line_up.options or {}).get('examples')
  by_name = open_loop.sampling_rivals(validation.editing)
  for name, by_count in by_name.items():
    is_possible = 0 in by_count or library is not None
    is_done = name in found.temperatures
    if is_done or not is_possible or open_loop.tuned(name) in without:
      continue
    means = {}
    with line_up.counting() as paid:
      settings = list(itertools.product(by_count, config.temperatures))
      for count, temperature in progress(settings):
        sampled = dataclasses.replace(ask, sample_temperature=temperature)
        entrant = dataclasses.replace(by_count[count], ask=sampled)
        means[count, temperature] = _score(validation, entrant, budgets)
      calls = paid()
    count, temperature = max(means, key=lambda key: means[key])
    examples = {name: count} if len(by_count) > 1 else {}
    found = dataclasses.replace(
      found,
      temperatures={**found.temperatures, name: temperature},
      temperature_calls={**found.temperature_calls, name: calls},
      examples={**found.examples, **examples},
      means={**found.means, open_loop.tuned(name): means[count, temperature]},
    )
  return found


def search_lists(
  validation: Validation,
  budgets: Sequence[int],
  progress: Callable[[Iterable[int]], Iterable[int]] = iter,
) -> dict[int, list[tuple[float, List]]]:
  """Returns the best lists of c calls with their scores, best first, by c."""
  config = validation.config
  count = config.seeds, len(validation.problems)
  start = _Played((), np.zeros(count, bool), np.ones(count, bool))
  beams = {0: [start]}
  for calls in progress(range(1, max(budgets) + 1)):
    longer = {
      (*played.operators, name): played
      for name in validation.editing.actions
      if 0 < OPERATORS[name].calls <= calls
      for played in beams[calls - OPERATORS[name].calls]
      if _has_effect(played.operators, name)
    }
    extended = _extend(validation, longer, calls)
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
  validation: Validation, longer: Mapping[List, _Played], calls: int
) -> list[_Played]:
  """Plays longer lists on the tasks that the shorter ones left open.

  Draws depend on the seed, the task and the calls made, so that the others
  would end as they did.

  Args:
    longer: by its operators, the list that each makes longer.
  """
  rows, games = [], []
  tasks, protocol = validation.problems, validation.protocol
  for operators, before in longer.items():
    played = _Played(operators, before.passed.copy(), before.is_open.copy())
    entrant = Entrant.of(open_loop.strategy(operators, validation.editing))
    for row, left in enumerate(before.is_open):
      places = np.flatnonzero(left)
      chosen = [tasks[int(place)] for place in places]
      rows.append((played, row, places))
      games.append(Game(entrant, chosen, protocol, calls, row))
  for (played, row, places), run in zip(
    rows, validation.line_up.run_all(games), strict=True
  ):
    played.passed[row, places] = run.passed
    solved = [r['row'] for r in run.trace if r['visible_passed']]
    played.is_open[row, places[solved]] = False
  return list(dict.fromkeys(played for played, _, _ in rows))


def _score(
  validation: Validation, entrant: Entrant, budgets: Sequence[int]
) -> float:
  """Pass rate, mean over the budgets and the seeds of the search."""
  games = [
    Game(entrant, validation.problems, validation.protocol, budget, run)
    for budget in budgets
    for run in range(validation.config.seeds)
  ]
  runs = validation.line_up.run_all(games)
  return float(np.mean([run.passed.mean() for run in runs]))


def _has_effect(operators: List, name: str) -> bool:
  """Whether the operator can act after those of the list."""
  if name == 'repair':
    return bool(operators)
  if name in ('reset_prompt', 'undo'):
    return bool({'lexical', 'semantic'} & set(operators))
  return True
