"""Rewriters beside the statement as it is: one rewrite, then one program.

Two model calls per problem, both greedy, under a protocol whose hidden tests
score the program once. The direct answer, one call, is the rival that every
rewriter has to beat.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from promptrl_jax.envs.editing.config import EditingConfig
from promptrl_jax.evaluation.cells import Cell
from promptrl_jax.evaluation.play import Entrant, LineUp
from promptrl_jax.evaluation.protocol import to_cell
from promptrl_jax.execution import ExecutionPool
from promptrl_jax.llm.ask import CODER, REWRITER
from promptrl_jax.llm.backend import Backend
from promptrl_jax.strategies import policies
from promptrl_jax.strategies.base import OverOperators
from promptrl_jax.types import Task

DIRECT = 'direct'
BUDGET = 2


def play(
  coder: Backend,
  rewriters: Mapping[str, Sequence[Backend]],
  tasks: Sequence[Task],
  pool: ExecutionPool,
  config: EditingConfig = EditingConfig(),
  *,
  protocol: str = 'visible1',
) -> list[Cell]:
  """Pass arrays of the direct answer and of each rewriter, problem by problem.

  `report.summarise(cells, subject=name)` compares them in pairs.

  Args:
    coder: the frozen model; cached, it answers each prompt once.
    rewriters: by name, one for each seed that it was trained with.
    tasks: what to solve.
    pool: runs the programs.
    config: template and lengths of the requests; the rest is set here.
    protocol: which tests a solver sees.

  Returns:
    A cell per name, `direct` first, at a budget of two calls; its rows are the
    seeds, of which the direct answer has one.

  Raises:
    ValueError: a rewriter has no model, or is called `direct`.
  """
  if DIRECT in rewriters:
    raise ValueError(f'a rewriter cannot be called {DIRECT!r}')
  for name, models in rewriters.items():
    if not models:
      raise ValueError(f'rewriter {name!r} has no model: give one per seed')
  config = dataclasses.replace(
    config,
    actions=('keep', 'semantic'),
    budget=BUDGET,
    max_steps=1,
    first_temperature=0.0,
  )
  cells = []
  for name, models in {DIRECT: [coder], **rewriters}.items():
    action = 'keep' if name == DIRECT else 'semantic'
    strategy = OverOperators(policies.fixed(action, config.actions), config)
    runs = [
      LineUp({REWRITER: model, CODER: coder}, pool, config).run(
        Entrant(lambda seed, strategy=strategy: strategy),
        tasks,
        protocol=protocol,
        budget=BUDGET,
        seed=0,
      )
      for model in models
    ]
    cells.append(to_cell(name, BUDGET, protocol, tasks, runs))
  return cells
