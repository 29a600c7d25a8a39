"""Strategies on tasks in one call, for those who use the library."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import cast

from promptrl_jax.evaluation.cells import Cell
from promptrl_jax.evaluation.play import Entrant, Game, LineUp
from promptrl_jax.evaluation.protocol import to_cell
from promptrl_jax.execution import ExecutionPool
from promptrl_jax.execution.memo import MemoPool
from promptrl_jax.llm.ask import AskConfig
from promptrl_jax.llm.attempt import CODER, REWRITER
from promptrl_jax.llm.backend import Backend
from promptrl_jax.llm.cache import CachedBackend
from promptrl_jax.strategies import base
from promptrl_jax.types import Task


def evaluate(
  strategies: Mapping[str, base.Strategy | base.PlayFn] | Sequence[str],
  tasks: Sequence[Task],
  *,
  coder: Backend,
  pool: ExecutionPool,
  rewriter: Backend | None = None,
  config: AskConfig = AskConfig(),
  protocol: str = 'visible1',
  budget: int = 8,
  seeds: Sequence[int] = (0,),
) -> list[Cell]:
  """Plays strategies on tasks; the short way for library use.

  Args:
    strategies: by name; a generator function of (attempt, tools) or a strategy.
      Or names of registered ones, such as `('best_of_n', 'mbr_exec')`.
    tasks: what to solve, scored by their hidden tests.
    coder: writes programs.
    pool: runs them.
    rewriter: rewrites statements; the coder does if there is none.
    config: how requests are written and sampled.
    protocol: which tests a solver sees; see `tasks.splits`.
    budget: most model calls per problem.
    seeds: one run each.

  Returns:
    One cell per strategy: `cell.passed` is bool [seeds, problems].

  Raises:
    ValueError: a name is not registered, there is no task or seed, or the
      budget is less than one call.
  """
  if budget < 1 or not tasks or not seeds:
    raise ValueError(
      f'budget={budget}, {len(tasks)} tasks, {len(seeds)} seeds: expected at '
      'least one model call per problem, one task and one seed'
    )
  line_up = LineUp(
    {
      REWRITER: CachedBackend(rewriter or coder),
      CODER: CachedBackend(coder),
    },
    MemoPool(pool),
    config,
  )
  if not isinstance(strategies, Mapping):
    strategies = {name: base.named(name) for name in strategies}
  cells = []
  for name, given in strategies.items():
    strategy = cast(base.Strategy, given)
    if inspect.isfunction(given):
      strategy = base.TextStrategy(given)
    entrant = Entrant.of(strategy)
    runs = line_up.run_all(
      [Game(entrant, tasks, protocol, budget, seed) for seed in seeds]
    )
    cells.append(to_cell(name, budget, protocol, tasks, runs))
  return cells
