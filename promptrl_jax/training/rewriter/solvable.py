"""Tasks that some rewrite solves: those that a rewriter can learn from.

Where all samples of a group fail, as where all pass, there is nothing to
compare. A task that the policy of the start solves now and then gives a signal
in nearly every batch; "Kimi k1.5: Scaling Reinforcement Learning with LLMs",
2025 (https://arxiv.org/abs/2501.12599), section 2.1, selects prompts likewise.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from promptrl_jax.envs.rewriting.env import RewritingEnv
from promptrl_jax.llm.backend import Backend
from promptrl_jax.strategies import prewrite
from promptrl_jax.strategies.prewrite import RewriteConfig
from promptrl_jax.tasks import splits
from promptrl_jax.types import Task


def solvable_tasks(
  env: RewritingEnv,
  rewriter: Backend,
  tasks: Sequence[Task],
  config: RewriteConfig,
) -> tuple[Task, ...]:
  """Returns the training tasks that at least one of K rewrites solves.

  Args:
    env: asks the frozen model, once for each rewrite.
    rewriter: the policy of the start.
    tasks: of the training split.
    config: number and temperature of the rewrites.

  Raises:
    ValueError: no task is left.
  """
  rewrites = prewrite.sample_rewrites(rewriter, env, tasks, config)
  again = [task for task in tasks for _ in range(config.samples)]
  _, outcomes = env.ask(
    again,
    [rewrite.statement for rewrite in itertools.chain(*rewrites)],
    [
      splits.for_reward(splits.reveal_for_training(task, env.protocol))
      for task in again
    ],
  )
  passed = np.reshape(
    [outcome.passed for outcome in outcomes], (len(tasks), -1)
  )
  kept = tuple(
    task for task, row in zip(tasks, passed, strict=True) if row.any()
  )
  if not kept:
    raise ValueError(
      f'none of {len(tasks)} tasks is solved by one of {config.samples} '
      'rewrites: expected a rewriter that solves some, or more samples'
    )
  return kept
