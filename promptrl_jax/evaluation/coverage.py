"""What is among several programs: oracle@B.

Best-of-B submits the program that the visible tests like best. If any of its B
programs passes the hidden tests, a perfect choice would have solved the
problem: that is the coverage of B samples (Chen et al. 2021, arXiv 2107.03374;
Brown et al. 2024, arXiv 2407.21787), and no strategy, since it reads the hidden
tests. One that changes prompts may lie above it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from promptrl_jax.envs.runner import Pool
from promptrl_jax.evaluation import markdown, protocol, samples, statistics
from promptrl_jax.evaluation.cells import Cell
from promptrl_jax.evaluation.play import Entrant, Game, LineUp, Plan
from promptrl_jax.evaluation.protocol import Run
from promptrl_jax.llm.ask import Tools, coder_prompt
from promptrl_jax.llm.attempt import Attempt, Play
from promptrl_jax.strategies.base import TextStrategy
from promptrl_jax.strategies.sampled import sample_program

NAME = 'oracle_of_n'


def sample_all(attempt: Attempt, tools: Tools) -> Play:
  """Asks for B programs, the first one greedy, whatever the tests say."""
  prompt, code = coder_prompt(attempt), ''
  for _ in range(attempt.budget_left):
    code, _ = yield from sample_program(attempt, tools, prompt)
  return code


def measure(line_up: LineUp, plan: Plan) -> tuple[Cell, Cell | None]:
  """The cell of a perfect choice among B samples, and that of the samples.

  The `soft` of the first is that of the best program by hidden tests; the
  second is `samples.of_runs`.

  Raises:
    SystemFailure: the pool failed where a result was due.
    BackendError: a model cannot be reached.
  """
  sampler = Entrant.of(TextStrategy(sample_all))
  runs = line_up.run_all(
    [
      Game(sampler, plan.tasks, plan.protocol, plan.budget, seed)
      for seed in plan.seeds
    ]
  )
  scored = [_score(run, line_up.pool, plan) for run in runs]
  soft = np.zeros((len(runs), len(plan.tasks)))
  for best, rows in zip(soft, scored, strict=True):
    for row, score in rows:
      best[row['row']] = max(best[row['row']], score)
  bound = protocol.to_cell(
    NAME,
    plan.budget,
    plan.protocol,
    plan.tasks,
    [
      dataclasses.replace(run, passed=row == 1.0, soft=row, details=())
      for run, row in zip(runs, soft, strict=True)
    ],
  )
  return bound, samples.of_runs(scored, plan.tasks, plan.protocol, plan.budget)


def _score(run: Run, pool: Pool, plan: Plan) -> list[samples.Scored]:
  """The rows of a run with the share of hidden tests that each one passes."""
  ran = [row for row in run.trace if row['code'] is not None]
  soft, _ = protocol.score(
    [row['code'] for row in ran],
    [plan.tasks[row['row']] for row in ran],
    plan.protocol,
    pool,
  )
  return list(zip(ran, soft.tolist(), strict=True))


def compare(
  bounds: Sequence[Cell],
  cells: Sequence[Cell],
  subject: str,
  rival: str = 'greedy_first',
  resamples: int = statistics.RESAMPLES,
) -> list[dict[str, Any]]:
  """How much of the gap between best-of-B and oracle@B a strategy closes.

  Args:
    bounds: cells of `measure`.
    cells: of the strategies, on the same problems and seeds.
    subject: the strategy.
    rival: best-of-B; its first program is greedy, too.
    resamples: of the bootstrap.

  Returns:
    A row per budget at which all three are there: `best_of_n`, `oracle`,
    `subject`, `closed` (the share of the gap; None where there is none), and
    `above_half` with `low` and `high`: by how much the subject is above the
    middle of the gap, with a 95 % interval over problems and seeds.
  """
  by_key = {(cell.strategy, cell.budget): cell for cell in cells}
  rows = []
  for bound in bounds:
    names = [(name, bound.budget) for name in (subject, rival)]
    if not set(names) <= set(by_key):
      continue
    mine, other, top = (
      np.asarray(cell.passed, float)
      for cell in (*(by_key[name] for name in names), bound)
    )
    if len(mine) != len(top):  # A strategy that plays one seed.
      mine, other = (np.broadcast_to(x, top.shape) for x in (mine, other))
    gap = float(top.mean() - other.mean())
    middle = (top + other) / 2
    interval = statistics.bootstrap_difference(
      mine, middle, groups=bound.families or None, resamples=resamples, seed=0
    )
    rows.append(
      {
        'budget': bound.budget,
        'best_of_n': float(other.mean()),
        'oracle': float(top.mean()),
        'subject': float(mine.mean()),
        'closed': float(mine.mean() - other.mean()) / gap if gap else None,
        'above_half': float(mine.mean() - middle.mean()),
        'low': interval.low,
        'high': interval.high,
      }
    )
  return rows


def to_markdown(rows: Sequence[Mapping[str, Any]], subject: str) -> str:
  """Prints the result of `compare`."""
  above_half = f'{subject} - middle of the gap'
  cells = [
    {
      'B': row['budget'],
      'best of B': markdown.points(row['best_of_n']),
      'oracle@B': markdown.points(row['oracle']),
      subject: markdown.points(row['subject']),
      'gap closed': _percent(row['closed']),
      above_half: markdown.interval(row, 'above_half', '+'),
    }
    for row in rows
  ]
  return (
    f'### How much of the gap to a perfect choice {subject} closes\n\n'
    'oracle@B: some of B samples of the first prompt, the first one greedy, '
    'passes the hidden tests. Another prompt may solve more.\n\n'
    f'{markdown.table(cells, "r")}\n'
  )


def _percent(share: float | None) -> str:
  return '' if share is None else f'{100 * share:.0f} %'
