"""How the lists, temperatures and numbers of examples of rivals are chosen.

A list is found by dynamic programming over calls: the best lists of c calls are
the best ones of fewer calls with one more operator, a beam of them. Since
requests are cached, a list costs the calls of its last operator alone.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TypeVar

import numpy as np

from promptrl_jax.envs.editing.config import EditingConfig
from promptrl_jax.evaluation import open_loop
from promptrl_jax.evaluation.open_loop import Found, List
from promptrl_jax.evaluation.play import Entrant, Game, LineUp
from promptrl_jax.llm.ask import AskConfig
from promptrl_jax.operators import OPERATORS
from promptrl_jax.types import Task

_Name = TypeVar('_Name')


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
      {
        names: Entrant.of(open_loop.strategy(names, editing))
        for names in sorted(tried)
      },
      budgets,
    )
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
  for name, by_count in open_loop.sampling_rivals(editing).items():
    is_possible = 0 in by_count or library is not None
    is_done = name in found.temperatures
    if is_done or not is_possible or open_loop.tuned(name) in without:
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
      means={**found.means, open_loop.tuned(name): means[count, temperature]},
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
    entrant = Entrant.of(open_loop.strategy(operators, editing))
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
