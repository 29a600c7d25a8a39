"""Several strategies share the calls of a problem, one after the other.

  schedule: (member, calls), (member, calls), ...
  problem ──> first member ──passes the visible tests──> submission
                 │ its calls are spent
                 └──> next member, from the untouched statement ──> ...

An algorithm portfolio: Huberman, Lukose and Hogg 1997, An Economics Approach to
Hard Computational Problems, Science 275; schedules of restarts: Streeter and
Golovin 2008, An Online Algorithm for Maximizing Submodular Functions. With one
member it restarts: Luby, Sinclair and Zuckerman 1993, Optimal Speedup of Las
Vegas Algorithms. What is submitted is the program that passes most visible
tests, the first of equals.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import random
import zlib
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any

from promptrl_jax.llm.ask import Tools
from promptrl_jax.llm.attempt import Ask, Attempt, Meet, Play
from promptrl_jax.llm.backend import Completion
from promptrl_jax.llm.ledger import BudgetExceeded
from promptrl_jax.operators import Episode
from promptrl_jax.strategies.base import Plays, Strategy
from promptrl_jax.types import Problem

# Between the seeds of two slices, so that the second one draws anew.
_STRIDE = 1_000_003


@dataclasses.dataclass(frozen=True)
class Slice:
  """The most calls that a member makes before the next one starts."""

  member: str
  calls: int

  def __post_init__(self):
    if self.calls < 1:
      raise ValueError(f'{self}: expected at least one call')


Schedule = tuple[Slice, ...]
# (problem, budget, seed) -> what is played.
ScheduleFn = Callable[[Problem, int, int], Schedule]


@functools.cache
def schedules(members: tuple[str, ...], budget: int) -> tuple[Schedule, ...]:
  """All schedules in which each member plays at most once.

  A slice is a power of two, but for the last one, which has all calls that are
  left of the budget. Shorter schedules come first.
  """
  found: list[Schedule] = []
  for count in range(1, len(members) + 1):
    for names in itertools.permutations(members, count):
      for sizes in _sizes(count - 1, budget - 1):
        calls = (*sizes, budget - sum(sizes))
        found.append(tuple(map(Slice, names, calls)))
  return tuple(found)


def _sizes(count: int, most: int) -> list[tuple[int, ...]]:
  """All tuples of powers of two with a sum of at most `most`."""
  if not count:
    return [()]
  powers = [2**k for k in range(most.bit_length()) if 2**k <= most]
  return [
    (first, *rest)
    for first in powers
    for rest in _sizes(count - 1, most - first)
  ]


def fixed(by_budget: Mapping[int, Schedule]) -> ScheduleFn:
  """The same schedule for all problems; that of the next lower budget."""

  def choose(problem: Problem, budget: int, seed: int) -> Schedule:
    del problem, seed
    lower = [b for b in by_budget if b <= budget]
    return by_budget[max(lower, default=min(by_budget))]

  return choose


def restarts(member: str, every: int) -> ScheduleFn:
  """One strategy, which starts anew after `every` calls."""

  def choose(problem: Problem, budget: int, seed: int) -> Schedule:
    del problem, seed
    starts = range(0, budget, every)
    return tuple(Slice(member, min(every, budget - start)) for start in starts)

  return choose


def drawn(members: tuple[str, ...]) -> ScheduleFn:
  """One of all schedules for each problem, drawn with equal probability."""

  def choose(problem: Problem, budget: int, seed: int) -> Schedule:
    rng = random.Random(zlib.crc32(f'{seed}/{problem.task_id}'.encode()))
    return rng.choice(schedules(members, budget))

  return choose


class Portfolio:
  """Plays a schedule of other strategies on each problem."""

  def __init__(self, members: Mapping[str, Strategy], schedule_fn: ScheduleFn):
    self._members = members
    self._schedule_fn = schedule_fn

  def start(
    self, problems: Sequence[Problem], tools: Tools, *, budget: int, seed: int
  ) -> Plays:
    chosen = [self._schedule_fn(p, budget, seed) for p in problems]
    rounds = range(max(map(len, chosen), default=0))
    # Members see all problems, so that their batches have one shape. A play
    # does nothing before it is asked for its first request.
    started = [
      {
        one: self._members[one.member].start(
          problems, tools, budget=one.calls, seed=seed + place * _STRIDE
        )
        for one in {s[place]: None for s in chosen if len(s) > place}
      }
      for place in rounds
    ]
    plays = []
    for row, (problem, schedule) in enumerate(
      zip(problems, chosen, strict=True)
    ):
      attempt = _Whole(problem, seed, budget, row)
      parts = [
        (one.member, *started[place][one][row])
        for place, one in enumerate(schedule)
      ]
      plays.append((attempt, _play(attempt, parts, tools.goes_on)))
    return plays


@dataclasses.dataclass
class _Whole(Attempt):
  """The attempt that all members are charged to.

  Attributes:
    member: name of the member that plays.
    part: its own attempt.
  """

  member: str = ''
  part: Attempt | None = None

  def charge(self, asked: Ask, completion: Completion) -> None:
    assert self.part is not None
    super().charge(asked, completion)
    self.sent = []  # The member's trace says what was sent.
    self.part.charge(asked, completion)

  def record(self, code: str, result: Any) -> None:
    assert self.part is not None
    self.part.attempts += 1
    self.part.record(code, result)

  def record_rest(self) -> None:
    """Takes over the trace of the member that has played."""
    if self.part is None:
      return
    self.part.record_rest()
    for row in self.part.trace:
      whole = {'step': len(self.trace), 'seed': self.seed}
      whole |= {'budget': self.budget, 'member': self.member}
      self.trace.append(row | whole)
    self.part = None


def _play(
  whole: _Whole, parts: Sequence[tuple[str, Attempt, Play]], goes_on: bool
) -> Play:
  best, most = '', -1
  visible = len(whole.problem.visible_tests)
  for place, (member, part, play) in enumerate(parts):
    if place:  # Policies expect all their rows in step.
      yield Meet()
    is_last = place == len(parts) - 1
    left = whole.budget_left
    part.budget = left if is_last else min(part.budget, left)
    part.asked = whole.asked
    if isinstance(part, Episode) and isinstance(whole.part, Episode):
      part.asked_greedily = whole.part.asked_greedily
    whole.record_rest()
    whole.member, whole.part = member, part
    code = yield from _within_slice(part, play)
    passed = max(
      (sum(row['visible']) for row in part.trace if row.get('code') == code),
      default=0,  # It was never run, and may be right.
    )
    if isinstance(code, str) and code.strip() and passed > most:
      best, most = code, passed
    passes = bool(visible) and most == visible
    if (passes and not goes_on) or whole.budget_left < 1:
      break
  return best


def _within_slice(part: Attempt, play: Play) -> Generator[Any, Any, Any]:
  """Passes on what a member asks for; a call beyond its slice is refused."""
  go_on: Callable[[], Any] = lambda: next(play)
  while True:
    try:
      request = go_on()
    except StopIteration as end:
      return end.value
    if isinstance(request, Ask) and part.budget_left < 1:
      error = BudgetExceeded(f'a call beyond the slice of {part.budget}')
      go_on = functools.partial(play.throw, error)
    else:
      go_on = functools.partial(play.send, (yield request))
