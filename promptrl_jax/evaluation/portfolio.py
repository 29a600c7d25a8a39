"""Which portfolio plays: members and slices, chosen on validation.

  members, played alone at 1, 2, 4, ... calls ──> who solves what, in how many
  calls ──> the value of each schedule ──> the best few, played ──> one for each
  budget

Playing alone says what a schedule would do if its slices were independent; the
last choice is made by what the schedules do. Each member alone is among them,
so that on validation no portfolio is worse than its best member.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from promptrl_jax.evaluation.play import Entrant, Game, LineUp
from promptrl_jax.evaluation.selection import Selected
from promptrl_jax.llm.backend import Backend
from promptrl_jax.strategies.portfolio import (
  Portfolio,
  Schedule,
  Slice,
  drawn,
  fixed,
  schedules,
)
from promptrl_jax.types import Task

NAMES = NAME, CONTROL = 'portfolio', 'random_portfolio'
# Schedules with the best values that are played, beside each member alone.
_PLAYED = 4


@dataclasses.dataclass(frozen=True)
class Chosen:
  """What was chosen on validation.

  Attributes:
    members: names of the strategies.
    best: schedule for each budget.
    scores: pass rates of these on validation, by budget; optimistic, as they
      were chosen there.
    calls: model calls that the choice paid for.
  """

  members: tuple[str, ...]
  best: Mapping[int, Schedule]
  scores: Mapping[int, float]
  calls: int

  @classmethod
  def from_json(cls, saved: Mapping[str, Any]) -> Chosen:
    """Reads what `dataclasses.asdict` wrote; JSON has no whole-number keys."""
    return cls(
      tuple(saved['members']),
      {
        int(budget): tuple(Slice(**one) for one in schedule)
        for budget, schedule in saved['best'].items()
      },
      {int(budget): score for budget, score in saved['scores'].items()},
      saved['calls'],
    )

  def entrant(self, members: Mapping[str, Entrant]) -> Entrant:
    """The portfolio."""
    return _entrant(members, fixed(self.best), self.calls)

  def selected(self, budgets: Sequence[int]) -> list[Selected]:
    """What was chosen by a score, for the budgets that are played."""
    return [
      Selected(NAME, (budget,), self.scores[budget])
      for budget in sorted(budgets)
      if budget in self.scores
    ]

  def facts(self) -> dict[str, str]:
    """What was chosen in words, for the header of a report."""
    return {
      f'{NAME}, B={budget}': ', '.join(
        f'{one.member} {one.calls}' for one in schedule
      )
      + f' ({100 * self.scores[budget]:.1f} % of validation)'
      for budget, schedule in self.best.items()
    }


def control(members: Mapping[str, Entrant]) -> Entrant:
  """The control of a portfolio of these members, whose schedules are drawn."""
  return _entrant(members, drawn(tuple(members)))


def members(
  names: Sequence[str], entrants: Mapping[str, Entrant], seed: int
) -> dict[str, Entrant]:
  """Returns the strategies of these names as members of one portfolio.

  All play with the same models: those of the line-up, but for what a member
  replaces.

  Raises:
    ValueError: a strategy cannot be a member.
  """
  if unknown := [name for name in names if name not in entrants]:
    raise ValueError(
      f'portfolio: {", ".join(unknown)} is not played, expected some of '
      f'{", ".join(entrants)}'
    )
  shared: dict[str, Backend] = {}
  paid: float | None = 0.0
  for name in names:
    entrant = entrants[name]
    if entrant.ask is not None:
      raise ValueError(
        f'portfolio: {name!r} has a temperature or an instruction of its own, '
        'and all members are asked alike: expected another strategy'
      )
    own = entrant.models(seed)
    paid = entrant.training_calls if own else paid
    for role, model in own.items():
      if shared.setdefault(role, model) is not model:
        raise ValueError(
          f'portfolio: {name!r} has a {role} of its own, and so has another '
          'member: expected one for all'
        )
  return {
    name: dataclasses.replace(
      entrants[name], models=lambda seed: shared, training_calls=paid
    )
    for name in names
  }


def choose(
  line_up: LineUp,
  entrants: Mapping[str, Entrant],
  tasks: Sequence[Task],
  *,
  protocol: str,
  budgets: Sequence[int],
  seeds: Sequence[int],
  progress: Callable[[Sequence[Any]], Iterable[Any]] = iter,
) -> Chosen:
  """Chooses a schedule for each budget.

  Args:
    line_up: plays; with cached models.
    entrants: what `members` returned.
    tasks: validation tasks.
    protocol: which tests are visible.
    budgets: those that a schedule is wanted for.
    seeds: runs of each member and schedule.
    progress: wraps what is played one after the other, members and then
      budgets, for a progress bar.
  """
  best, scores = {}, {}
  with line_up.counting() as paid:
    alone = _play_alone(
      line_up, entrants, tasks, protocol, max(budgets), tuple(seeds), progress
    )
    for budget in progress(budgets):
      every = schedules(tuple(entrants), budget)
      values = {one: alone.value(one) for one in every}
      ranked = sorted(every, key=lambda one: -values[one])
      played = [one for one in every if len(one) == 1]
      played += [one for one in ranked if len(one) > 1][:_PLAYED]
      runs = line_up.run_all(
        [
          Game(
            _entrant(entrants, fixed({budget: one})),
            tasks,
            protocol,
            budget,
            seed,
          )
          for one in played
          for seed in seeds
        ]
      )
      passed = [run.passed.mean() for run in runs]
      means = np.reshape(passed, (len(played), -1)).mean(axis=1)
      place = int(means.argmax())  # of equals the first, which is shorter
      best[budget], scores[budget] = played[place], float(means[place])
    calls = paid()
  return Chosen(tuple(entrants), best, scores, calls)


@dataclasses.dataclass(frozen=True, eq=False)
class _Alone:
  """Members that were played alone at 1, 2, 4, ... calls.

  Arrays by (member, calls) are [seeds, tasks].

  Attributes:
    solved: the submission passes all hidden tests.
    visible: share of the visible tests that it passes.
    calls: that were made.
  """

  solved: dict[tuple[str, int], np.ndarray]
  visible: dict[tuple[str, int], np.ndarray]
  calls: dict[tuple[str, int], np.ndarray]

  def value(self, schedule: Schedule) -> float:
    """Pass rate of a schedule whose slices know nothing of one another."""
    shape = next(iter(self.calls.values())).shape
    solved, most = np.zeros(shape, bool), np.full(shape, -1.0)
    left = np.full(shape, sum(one.calls for one in schedule))
    for place, one in enumerate(schedule):
      most_calls = left if place == len(schedule) - 1 else one.calls
      allowed = np.minimum(most_calls, left)
      sizes = 2 ** np.floor(np.log2(np.maximum(allowed, 1))).astype(int)
      for size in np.unique(sizes):
        key = one.member, int(size)
        plays = (sizes == size) & (most < 1) & (left > 0)
        better = plays & (self.visible[key] > most)
        solved = np.where(better, self.solved[key], solved)
        most = np.where(better, self.visible[key], most)
        left = np.where(plays, left - self.calls[key], left)
    return float(solved.mean())


def _play_alone(
  line_up: LineUp,
  entrants: Mapping[str, Entrant],
  tasks: Sequence[Task],
  protocol: str,
  most: int,
  seeds: tuple[int, ...],
  progress: Callable[[Sequence[Any]], Iterable[Any]],
) -> _Alone:
  sizes = [2**k for k in range(most.bit_length()) if 2**k <= most]
  keys = [(name, size) for name in entrants for size in sizes]
  found = _Alone({}, {}, {})
  for key in progress(keys):
    name, size = key
    played = line_up.run_all(
      [Game(entrants[name], tasks, protocol, size, seed) for seed in seeds]
    )
    found.solved[key] = np.stack([run.passed for run in played])
    found.calls[key] = np.stack([run.calls for run in played])
    found.visible[key] = np.stack(
      [_visible_share(run.trace, len(tasks)) for run in played]
    )
  return found


def _visible_share(trace: Sequence[Mapping[str, Any]], count: int):
  """Largest share of visible tests that a program of each problem passes."""
  best = np.zeros(count)
  for row in trace:
    if row['visible']:
      share = sum(row['visible']) / len(row['visible'])
      best[row['row']] = max(best[row['row']], share)
  return best


def _entrant(
  members: Mapping[str, Entrant], schedule_fn: Any, choice_calls: int = 0
) -> Entrant:
  paid = sum(member.optimisation_calls for member in members.values())
  first = next(iter(members.values()))
  return Entrant(
    lambda seed: Portfolio(
      {name: member.make(seed) for name, member in members.items()},
      schedule_fn,
    ),
    models=first.models,  # the same for all
    optimisation_calls=paid + choice_calls,
    training_calls=first.training_calls,
  )
