"""Refines a prompt step by step until a rule or the limit ends it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from promptrl_jax.prompts.prompt import Prompt, PromptHistory


def check_refined(refined: Any) -> Prompt:
  """Returns what a function that refines has made, if that is a prompt.

  Raises:
    TypeError: it is something else.
  """
  if not isinstance(refined, Prompt):
    raise TypeError(
      f'refine_fn returned {refined!r}: expected a Prompt, such as '
      'prompt.with_refinement(new_text)'
    )
  return refined


@dataclasses.dataclass(frozen=True)
class RefinementLoop:
  """Applies a function to a prompt again and again.

  Attributes:
    refine_fn: makes the next version of a prompt.
    max_steps: most prompts of a history, the initial one included.
    stop_fn: given a prompt and the next one, says whether that is the last.
  """

  refine_fn: Callable[[Prompt], Prompt]
  max_steps: int = 10
  stop_fn: Callable[[Prompt, Prompt], bool] | None = None

  def __post_init__(self):
    if self.max_steps < 1:
      raise ValueError(f'max_steps={self.max_steps}: expected 1 or more')

  def run(self, initial: Prompt) -> PromptHistory:
    """Returns all versions; the one that the rule stops at is the last."""
    prompt, history = initial, PromptHistory([initial])
    while len(history) < self.max_steps:
      before, prompt = prompt, check_refined(self.refine_fn(prompt))
      history.append(prompt)
      if self.stop_fn is not None and self.stop_fn(before, prompt):
        break
    return history
