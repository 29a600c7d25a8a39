"""Tasks that the frozen model fails as they are worded: those to rewrite.

A rewrite of what was solved anyway can only spoil it. A solver that asks first
and has rewritten what failed needs a rewriter for those statements alone, and
can show it what the visible tests said.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from promptrl_jax.envs.rewriting.env import RewritingEnv
from promptrl_jax.prompts import feedback as feedback_lib
from promptrl_jax.tasks import splits
from promptrl_jax.types import Task


def failed_tasks(env: RewritingEnv, tasks: Sequence[Task]) -> tuple[Task, ...]:
  """Returns the tasks whose statement makes the model fail, with the feedback.

  The model is asked once, as the environment asks it; nothing but the visible
  tests is run. A task that the system lost is left out.
  """
  _, outcomes = env.ask(
    tasks,
    [task.statement for task in tasks],
    [splits.visible(task, env.protocol) for task in tasks],
  )
  return tuple(
    dataclasses.replace(
      task, feedback=feedback_lib.feedback_text(outcome.tests)
    )
    for task, outcome in zip(tasks, outcomes, strict=True)
    if outcome.score is not None and not outcome.passed
  )
