"""The interface between the learner of a rewriter and an environment.

  tasks ─► prompts ─► (rewriter) ─► submit ─► result: a reward for each row

`RewritingEnv` implements it.
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
  """Rewards of N rewrites."""

  @property
  def rewards(self) -> np.ndarray:
    """float32 [N]; NaN for a row that the system dropped."""
    ...

  @property
  def calls(self) -> int:
    """Calls of the frozen model that the rewards took."""
    ...

  def metrics(self) -> dict[str, float]:
    """Returns rows for `MetricWriter`; `reward/mean` among them."""
    ...


class Pending(Protocol):
  """Rewards that are being computed."""

  def result(self) -> Rewarded:
    """Waits for the rewards."""
    ...


class RewriteEnv(Protocol[TaskT]):
  """An environment that rewards rewrites."""

  def prompts(self, tasks: Sequence[TaskT]) -> list[templates.Messages]:
    """Returns the rewriter's messages, one conversation per task."""
    ...

  def submit(
    self,
    tasks: Sequence[TaskT],
    rewrites: Sequence[str],
    seed: int,
    finished: Sequence[bool],
  ) -> Pending:
    """Begins to reward rows; see `RewritingEnv.submit`."""
    ...
