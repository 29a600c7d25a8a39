"""Rewriters beside the statement as it is: one rewrite, then one answer.

  tasks ─► (rewriter) ─► statements ─► frozen model ─► hidden checker ─► Cell

Two model calls per task, both greedy, asked through the environment that
rewriters are trained in. The direct answer, one call, is the rival that every
rewriter has to beat.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from promptrl_jax.envs.rewriting.env import Answer, RewritingEnv
from promptrl_jax.evaluation.cells import Cell, Detail, prompt_hash
from promptrl_jax.evaluation.protocol import Run, check_judged, to_cell
from promptrl_jax.llm.backend import Backend
from promptrl_jax.rewards.checking import Outcome
from promptrl_jax.strategies import prewrite
from promptrl_jax.strategies.prewrite import Rewrite
from promptrl_jax.tasks import splits
from promptrl_jax.types import Task

DIRECT = 'direct'
BUDGET = 2


def play(
  env: RewritingEnv,
  rewriters: Mapping[str, Sequence[Backend]],
  tasks: Sequence[Task],
  paid: Mapping[str, float | None] | None = None,
) -> list[Cell]:
  """Plays the direct answer and each rewriter, problem by problem.

  `report.summarise(cells, subject=name)` compares them in pairs.

  Args:
    env: asks the frozen model and checks its replies, greedy as long as its
      `first_temperature` is 0.
    rewriters: by name, one for each seed that it was trained with.
    tasks: what to solve.
    paid: calls of the training of a rewriter, by name; None: unknown. Those of
      names that are not there have cost none.

  Returns:
    A cell per name, `direct` first, at a budget of two calls; its rows are the
    seeds, of which the direct answer has one.

  Raises:
    ValueError: a rewriter has no model, or is called `direct`.
    SystemFailure: a reply got no verdict.
  """
  if DIRECT in rewriters:
    raise ValueError(f'a rewriter cannot be called {DIRECT!r}')
  for name, models in rewriters.items():
    if not models:
      raise ValueError(f'rewriter {name!r} has no model: give one per seed')
  entrants = {DIRECT: [None], **rewriters}
  return [
    to_cell(
      name,
      BUDGET,
      env.protocol,
      tasks,
      [run(env, m, tasks) for m in models],
      (paid or {}).get(name, 0.0),
    )
    for name, models in entrants.items()
  ]


def run(
  env: RewritingEnv, rewriter: Backend | None, tasks: Sequence[Task]
) -> Run:
  """Asks with rewritten statements, or without a rewriter with the originals.

  Replies are scored by the hidden checkers.

  Raises:
    SystemFailure: a reply got no verdict.
  """
  rewrites = [Rewrite(None, None, task.statement) for task in tasks]
  if rewriter is not None:
    rewrites = prewrite.rewrite_greedily(rewriter, env, tasks)
  answers, outcomes = env.ask(
    tasks,
    [rewrite.statement for rewrite in rewrites],
    [splits.hidden(task, env.protocol) for task in tasks],
  )
  check_judged('replies', tasks, [o.score is not None for o in outcomes])
  completions = [
    (*([rewrite.completion] if rewrite.completion else []), *answer.completions)
    for rewrite, answer in zip(rewrites, answers, strict=True)
  ]

  def total(field: str) -> np.ndarray:
    sums = [sum(getattr(c, field) for c in row) for row in completions]
    return np.array(sums, np.int64)

  scores = np.array([outcome.score for outcome in outcomes], np.float64)
  return Run(
    passed=scores == 1.0,
    soft=scores,
    calls=np.array([len(row) for row in completions]),
    attempts=np.ones(len(tasks), np.int64),
    prompt_tokens=total('prompt_tokens'),
    completion_tokens=total('completion_tokens'),
    trace=[],
    details=tuple(map(_detail, rewrites, answers, outcomes)),
  )


def _detail(rewrite: Rewrite, answer: Answer, outcome: Outcome) -> Detail:
  messages = answer.requests[-1].messages if answer.requests else ()
  return Detail(
    steps=1,
    actions='rewrite' if rewrite.request else '',
    prompt=prompt_hash([vars(m) for m in messages]) if messages else '',
    mask=''.join('01'[score == 1.0] for score in outcome.scores),
  )
