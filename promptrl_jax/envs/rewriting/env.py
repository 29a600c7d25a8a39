"""What the learner of a rewriter needs of an environment.

  tasks ─► prompts ─► (rewriter) ─► submit ─► result: a reward for each row

`RewritingEnv` rewards rewrites of problems by tests, `InstructionRewriting`
rewrites of instructions by the answers of a task model.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

import numpy as np

from promptrl_jax.prompts import templates


class Identified(Protocol):
  """A task, which has a name that is its own."""

  @property
  def task_id(self) -> str: ...


TaskT = TypeVar('TaskT', bound=Identified, contravariant=True)


class Rewarded(Protocol):
  """What N rewrites were worth."""

  @property
  def rewards(self) -> np.ndarray:
    """float32 [N]; NaN for a row that the system dropped."""
    ...

  @property
  def calls(self) -> int:
    """Calls of the frozen model that rewards took."""
    ...

  def metrics(self) -> dict[str, float]:
    """For `MetricWriter`; `reward/mean` among them."""
    ...


class Pending(Protocol):
  """Rewards to come."""

  def result(self) -> Rewarded:
    """Waits for them; again, it gives the same object."""
    ...


class RewriteEnv(Protocol[TaskT]):
  """Rewrites in, rewards out."""

  def prompts(self, tasks: Sequence[TaskT]) -> list[templates.Messages]:
    """What the rewriter is asked, one conversation per task."""
    ...

  def submit(
    self,
    tasks: Sequence[TaskT],
    rewrites: Sequence[str],
    seed: int,
    finished: Sequence[bool],
  ) -> Pending:
    """Begins to reward rows.

    Args:
      tasks: the task of each row.
      rewrites: what the rewriter wrote for it.
      seed: of the batch: rows of one task meet the same luck.
      finished: False for a rewrite that the limit cut off.
    """
    ...
