"""Counts model calls, tokens and seconds of each role."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from promptrl_jax.llm.backend import Completion


class BudgetExceeded(RuntimeError):
  """A reservation was refused; no call has been made."""


@dataclasses.dataclass
class Usage:
  """Reserved calls, reported tokens and wall seconds of one role."""

  calls: int = 0
  prompt_tokens: int = 0
  completion_tokens: int = 0
  seconds: float = 0.0


class Ledger:
  """Usage per role (`coder`, `rewriter`, ...)."""

  def __init__(self):
    self.roles: dict[str, Usage] = {}

  def reserve(self, role: str, n: int = 1) -> None:
    """Counts `n` calls that are about to be made."""
    self.roles.setdefault(role, Usage()).calls += n

  def record(
    self, role: str, completions: Iterable[Completion], seconds: float = 0.0
  ) -> None:
    """Adds the tokens and the wall time of calls that were reserved before."""
    usage = self.roles.setdefault(role, Usage())
    for completion in completions:
      usage.prompt_tokens += completion.prompt_tokens
      usage.completion_tokens += completion.completion_tokens
    usage.seconds += seconds
