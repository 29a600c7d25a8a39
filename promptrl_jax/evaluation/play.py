"""One line-up for all strategies: the same problems, protocols and budgets.

  tasks --reveal--> problems --strategy, runner--> submissions --hidden tests-->
    Run --> Cell

Strategies are given `Problem`s. Hidden tests are looked up here, after every
attempt has ended, for the one program that each attempt submits. What is
learned and what is fixed, what reads text and what chooses operators differ in
the strategy alone.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import json
import math
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any, cast

import numpy as np

from promptrl_jax.envs.editing.config import EditingConfig
from promptrl_jax.envs.editing.env import sorted_trace
from promptrl_jax.envs.runner import ActivePlay, Pool, Runner
from promptrl_jax.evaluation.cells import Cell, Detail, prompt_hash
from promptrl_jax.evaluation.protocol import (
  Run,
  check_judged,
  score,
  to_cell,
)
from promptrl_jax.llm.ask import AskConfig, make_tools
from promptrl_jax.llm.attempt import Attempt
from promptrl_jax.llm.backend import Backend
from promptrl_jax.llm.cache import CachedBackend
from promptrl_jax.operators import FALLBACK, OPERATORS
from promptrl_jax.strategies import base, policies
from promptrl_jax.tasks import splits
from promptrl_jax.types import Task


@dataclasses.dataclass(frozen=True)
class Entrant:
  """One strategy of the line-up.

  Attributes:
    make: seed -> strategy.
    models: seed -> models, by role, that replace those of the line-up.
    fixed: always the same operator, so that it may become `best_fixed`.
    single: one greedy call, whatever the budget, and no use for seeds.
    ask: how requests are written and sampled; None: as the line-up does.
    optimisation_calls: calls paid once, before the first test problem, but for
      those of `training_calls`.
    training_calls: calls of the training of `models`, which a portfolio of
      several entrants with these models pays once; None: unknown.
  """

  make: Callable[[int], base.Strategy]
  models: Callable[[int], Mapping[str, Backend]] = lambda seed: {}
  fixed: bool = False
  single: bool = False
  ask: AskConfig | None = None
  optimisation_calls: float = 0.0
  training_calls: float | None = 0.0

  @property
  def calls_paid_once(self) -> float | None:
    """All calls before the first test problem; None: unknown."""
    if self.training_calls is None:
      return None
    return self.optimisation_calls + self.training_calls

  @classmethod
  def of(cls, strategy: base.Strategy, **fields: Any) -> Entrant:
    """A strategy that is the same for all seeds."""
    return cls(lambda seed: strategy, **fields)


@dataclasses.dataclass(frozen=True)
class Plan:
  """One column of a table: the same problems, protocol and budget for all."""

  protocol: str
  budget: int
  tasks: Sequence[Task]
  seeds: Sequence[int]


@dataclasses.dataclass(frozen=True)
class Game:
  """One strategy on all tasks, once, as `LineUp.run` plays it."""

  entrant: Entrant
  tasks: Sequence[Task]
  protocol: str
  budget: int
  seed: int


def rivals(config: EditingConfig) -> dict[str, Entrant]:
  """The strategies that learn nothing: each operator alone, and random ones."""

  def repeat(name: str) -> Entrant:
    policy = policies.fixed(name, config.actions)
    return Entrant(
      lambda seed: base.OverOperators(policy, config),
      fixed=True,
      single=name == FALLBACK,
    )

  labels = {name: OPERATORS[name].rival for name in config.actions}
  entrants = {label: repeat(name) for name, label in labels.items() if label}
  # Asking again samples what was asked greedily: the other best-of-B.
  again = dataclasses.replace(repeat(FALLBACK), single=False)
  return entrants | {
    'greedy_first': again,
    'random': Entrant(
      lambda seed: base.OverOperators(policies.uniform(seed), config)
    ),
  }


class LineUp:
  """Plays strategies with the same models on the same pool.

  Attributes:
    backends: the model of each role, in the order in which they are served.
    pool: runs programs.
    options: of `Tools`, such as worked examples.
  """

  def __init__(
    self,
    backends: Mapping[str, Backend],
    pool: Pool,
    config: AskConfig = AskConfig(),
    options: Mapping[str, Any] | None = None,
  ):
    """Puts the parts together.

    Args:
      backends: the model of each role, in the order in which they are served;
        cached, so that a request that two strategies share is answered once.
      pool: runs programs, visible tests and hidden ones.
      config: how requests are written and sampled.
      options: of `Tools`, such as worked examples.
    """
    self.backends = backends
    self.pool = pool
    self._config = config
    self.options = options

  @contextlib.contextmanager
  def counting(self) -> Iterator[Callable[[], int]]:
    """Yields how many different model calls were made meanwhile.

    That is what they cost alone, whatever a cache held before. Backends must be
    cached.
    """
    with contextlib.ExitStack() as stack:
      cached = cast('Iterable[CachedBackend]', self.backends.values())
      asked = [stack.enter_context(each.counting()) for each in cached]
      yield lambda: sum(map(len, asked))

  def run(
    self,
    entrant: Entrant,
    tasks: Sequence[Task],
    *,
    protocol: str,
    budget: int,
    seed: int,
  ) -> Run:
    """Plays every task once and scores the submissions.

    Raises:
      SystemFailure: the pool failed where a result was due.
      BackendError: a model cannot be reached.
    """
    (run,) = self.run_all([Game(entrant, tasks, protocol, budget, seed)])
    return run

  def run_all(self, games: Sequence[Game]) -> list[Run]:
    """Plays games at once, so that models are asked in large batches.

    Games whose models are the same share their calls; the outcome of each is
    what it is alone.

    Raises:
      SystemFailure: the pool failed where a result was due.
      BackendError: a model cannot be reached.
    """
    runs: dict[int, Run] = {}
    tables = [{**self.backends, **g.entrant.models(g.seed)} for g in games]
    names = [tuple(map(id, table.values())) for table in tables]
    for name in dict.fromkeys(names):
      chosen = [i for i, other in enumerate(names) if other == name]
      table = tables[chosen[0]]
      plays = [self._start(games[i], table) for i in chosen]
      # Seeds of an entrant are plays of one strategy.
      strategies = chain.from_iterable(
        [id(games[i].entrant)] * len(started)
        for i, started in zip(chosen, plays, strict=True)
      )
      runner = Runner(table, self.pool)
      ended = iter(runner.run(list(chain(*plays)), list(strategies)))
      for i, started in zip(chosen, plays, strict=True):
        runs[i] = self._judge(games[i], list(islice(ended, len(started))))
    return [runs[i] for i in range(len(games))]

  def _start(self, game: Game, backends: Mapping[str, Backend]) -> base.Plays:
    """The attempts of a game, before their first request."""
    entrant = game.entrant
    return entrant.make(game.seed).start(
      [splits.reveal(task, game.protocol) for task in game.tasks],
      make_tools(entrant.ask or self._config, backends, self.options),
      budget=1 if entrant.single else game.budget,
      seed=game.seed,
    )

  def _judge(self, game: Game, ended: Sequence[ActivePlay]) -> Run:
    """Scores what was submitted."""
    attempts = [play.attempt for play in ended]
    lost = [attempt.lost for attempt in attempts]
    check_judged('problems', game.tasks, [not was_lost for was_lost in lost])
    soft, masks = score(
      [play.submission for play in ended],
      game.tasks,
      game.protocol,
      self.pool,
    )

    def column(name: str) -> np.ndarray:
      return np.array(
        [getattr(attempt, name) for attempt in attempts], np.int64
      )

    return Run(
      passed=soft == 1.0,
      soft=soft,
      calls=column('calls'),
      attempts=column('attempts'),
      prompt_tokens=column('prompt_tokens'),
      completion_tokens=column('completion_tokens'),
      trace=sorted_trace(attempts),
      details=tuple(map(_detail, attempts, masks)),
    )

  def play(
    self,
    entrants: Mapping[str, Entrant],
    plans: Sequence[Plan],
    trace_path: pathlib.Path,
    progress: Callable[[list], Iterable] = iter,
  ) -> dict[str, list[Cell]]:
    """Plays every entrant by name under every plan; returns cells by protocol.

    Args:
      entrants: the strategies.
      plans: what they play.
      trace_path: written whole, one JSON object per step.
      progress: wraps the list of (plan, name) for a progress bar.
    """
    cells = collections.defaultdict(list)
    temporary = trace_path.with_name(f'.{trace_path.name}.tmp')
    with open(temporary, 'w', encoding='utf-8') as trace:
      for plan, name in progress([(p, n) for p in plans for n in entrants]):
        cell, rows = self.play_cell(name, entrants[name], plan)
        trace.writelines(f'{json.dumps(row)}\n' for row in rows)
        cells[plan.protocol].append(cell)
    temporary.replace(trace_path)
    return cells

  def play_cell(
    self, name: str, entrant: Entrant, plan: Plan
  ) -> tuple[Cell, list[dict[str, Any]]]:
    """Plays one entrant under one plan; returns its cell and its trace."""
    return self.play_cells({name: entrant}, plan)[name]

  def play_cells(
    self, entrants: Mapping[str, Entrant], plan: Plan
  ) -> dict[str, tuple[Cell, list[dict[str, Any]]]]:
    """Plays entrants under one plan, at once: `play_cell` of each, by name."""
    games = {
      name: [
        _game(entrant, plan, plan.tasks, seed)
        for seed in (plan.seeds[:1] if entrant.single else plan.seeds)
      ]
      for name, entrant in entrants.items()
    }
    ended = iter(self.run_all(list(chain(*games.values()))))
    played = {}
    for name, entrant in entrants.items():
      runs = list(islice(ended, len(games[name])))
      label = {'strategy': name, 'protocol': plan.protocol}
      rows = [
        {**label, **row, 'budget': plan.budget}
        for run in runs
        for row in run.trace
      ]
      paid = entrant.calls_paid_once
      cell = to_cell(name, plan.budget, plan.protocol, plan.tasks, runs, paid)
      played[name] = cell, rows
    return played

  def best_fixed(
    self,
    entrants: Mapping[str, Entrant],
    plan: Plan,
    validation: Sequence[Task],
    cells: Sequence[Cell],
  ) -> Cell:
    """The cell of the fixed operator that is best on validation, renamed."""
    fixed = {n: entrant for n, entrant in entrants.items() if entrant.fixed}
    runs = self.run_all(
      [_game(e, plan, validation, plan.seeds[0]) for e in fixed.values()]
    )
    scores = {
      name: run.passed.mean() for name, run in zip(fixed, runs, strict=True)
    }
    best = max(scores, key=lambda name: scores[name])
    chosen = next(
      c for c in cells if (c.strategy, c.budget) == (best, plan.budget)
    )
    return dataclasses.replace(chosen, strategy='best_fixed')


def _game(
  entrant: Entrant, plan: Plan, tasks: Sequence[Task], seed: int
) -> Game:
  return Game(entrant, tasks, plan.protocol, plan.budget, seed)


def _detail(attempt: Attempt, mask: str) -> Detail:
  """How one problem was played, from its trace."""
  sent = [ask for row in attempt.trace for ask in row['sent']]
  return Detail(
    steps=len(attempt.trace),
    actions=' '.join(row['action'] for row in attempt.trace),
    prompt=prompt_hash(sent[-1]['messages']) if sent else '',
    reward=math.fsum(row['reward'] for row in attempt.trace),
    mask=mask,
    error=attempt.error,
  )
