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


def solving_rewrites(
  env: RewritingEnv,
  rewriter: Backend,
  tasks: Sequence[Task],
  config: RewriteConfig,
  progress: Callable[[list], Iterable] = iter,
) -> list[tuple[Rewrite, ...]]:
  """Returns for each training task those of K rewrites that solve it.

  Args:
    env: asks the frozen model, once for each rewrite.
    rewriter: the policy of the start.
    tasks: of the training split.
    config: number and temperature of the rewrites.
    progress: wraps the list of batches, `tqdm.tqdm` for example.

  Returns:
    Rewrites without a flag whose programs pass all tests, by task; one that the
    system lost is not among them.
  """
  solving = []
  starts = list(range(0, len(tasks), _AT_ONCE))
  for start in progress(starts):
    batch = tasks[start : start + _AT_ONCE]
    drawn = prewrite.sample_rewrites(rewriter, env, batch, config)
    rewrites = list(itertools.chain(*drawn))
    result = env.rewards(
      [task for task in batch for _ in range(config.samples)],
      [rewrite.reply for rewrite in rewrites],
      config.seed,
      [_is_finished(rewrite) for rewrite in rewrites],
    )
    passed = iter([o is not None and o.passed for o in result.outcomes])
    solving += [tuple(itertools.compress(group, passed)) for group in drawn]
  return solving


def solvable_tasks(
  env: RewritingEnv,
  rewriter: Backend,
  tasks: Sequence[Task],
  config: RewriteConfig,
) -> tuple[Task, ...]:
  """Returns the training tasks that at least one of K rewrites solves.

  Arguments are those of `solving_rewrites`.

  Raises:
    ValueError: no task is left.
  """
  solving = solving_rewrites(env, rewriter, tasks, config)
  kept = tuple(itertools.compress(tasks, solving))
  if not kept:
    raise ValueError(
      f'none of {len(tasks)} tasks is solved by one of {config.samples} '
      'rewrites: expected a rewriter that solves some, or more samples'
    )
  return kept


def _is_finished(rewrite: Rewrite) -> bool:
  return (
    rewrite.completion is not None
    and rewrite.completion.finish_reason != 'length'
  )
