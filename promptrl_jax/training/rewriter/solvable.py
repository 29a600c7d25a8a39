"""Rewrites that solve their task, and the tasks that have one.

Where all samples of a group fail, as where all pass, there is nothing to
compare. A task that the policy of the start solves now and then gives a signal
in nearly every batch; "Kimi k1.5: Scaling Reinforcement Learning with LLMs",
2025 (https://arxiv.org/abs/2501.12599), section 2.1, selects prompts likewise.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence

from promptrl_jax.envs.rewriting.env import RewritingEnv
from promptrl_jax.llm.backend import Backend
from promptrl_jax.strategies import prewrite
from promptrl_jax.strategies.prewrite import Rewrite, RewriteConfig
from promptrl_jax.types import Task

_AT_ONCE = 256  # tasks that are rewritten, and then solved, in one batch


def solving_statements(
  env: RewritingEnv,
  rewriter: Backend,
  tasks: Sequence[Task],
  config: RewriteConfig,
  widen: Callable[[Task, Sequence[str]], Iterable[str]] | None = None,
  progress: Callable[[list], Iterable] = iter,
) -> tuple[list[list[str]], int]:
  """Returns for each training task the rewritten statements that solve it.

  Args:
    env: asks the frozen model, once for each candidate.
    rewriter: the policy of the start.
    tasks: of the training split.
    config: number K and temperature of the rewrites.
    widen: turns the finished replies about a task into those that are tried;
      without it these are tried.
    progress: wraps the list of batches, `tqdm.tqdm` for example.

  Returns:
    Distinct statements without a flag whose programs pass all tests, by task,
    and the calls made; one that the system lost is not among them.
  """
  solving: list[list[str]] = []
  calls = 0
  starts = list(range(0, len(tasks), _AT_ONCE))
  for start in progress(starts):
    batch = tasks[start : start + _AT_ONCE]
    rows = []
    drawn = prewrite.sample_rewrites(rewriter, env, batch, config)
    for i, (task, rewrites) in enumerate(zip(batch, drawn, strict=True)):
      calls += sum(r.completion is not None for r in rewrites)
      replies = [r.reply for r in rewrites if _is_finished(r)]
      wide = widen(task, replies) if widen else replies
      rows += [(i, reply) for reply in dict.fromkeys(wide)]
    found: list[dict[str, None]] = [{} for _ in batch]
    if rows:
      owners, replies = zip(*rows, strict=True)
      result = env.rewards([batch[i] for i in owners], replies, config.seed)
      calls += result.calls
      for i, statement, outcome in zip(
        owners, result.statements, result.outcomes, strict=True
      ):
        if outcome is not None and outcome.passed:
          found[i][statement] = None
    solving += map(list, found)
  return solving, calls


def solvable_tasks(
  env: RewritingEnv,
  rewriter: Backend,
  tasks: Sequence[Task],
  config: RewriteConfig,
) -> tuple[tuple[Task, ...], int]:
  """Returns the training tasks that one of K rewrites solves, and the calls.

  Arguments are those of `solving_statements`.

  Raises:
    ValueError: no task is left.
  """
  solving, calls = solving_statements(env, rewriter, tasks, config)
  kept = tuple(itertools.compress(tasks, solving))
  if not kept:
    raise ValueError(
      f'none of {len(tasks)} tasks is solved by one of {config.samples} '
      'rewrites: expected a rewriter that solves some, or more samples'
    )
  return kept, calls


def _is_finished(rewrite: Rewrite) -> bool:
  return (
    rewrite.completion is not None
    and rewrite.completion.finish_reason != 'length'
  )
