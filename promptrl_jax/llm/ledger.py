"""Counts model calls, tokens and seconds, and enforces a cap on calls.

The unit of a budget is one language-model call of any role. Callers reserve
calls before they make them, so the cap is never exceeded, and record tokens and
seconds when the completions arrive.

  ledger = Ledger(calls_per_problem=8)
  ledger.reserve('generate', len(requests), problem='mbpp/11')
  completions = backend.complete(requests)
  ledger.record('generate', completions, seconds=elapsed)
"""

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
  """Call counts per problem against a cap, and usage per role.

  Attributes:
    calls_per_problem: upper limit on the calls of all roles together for one
      problem; `None` counts calls without a limit.
    roles: usage of each role (`generate`, `rewrite`, `reflect`, ...).
  """

  def __init__(self, calls_per_problem: int | None = None):
    if calls_per_problem is not None and calls_per_problem < 0:
      raise ValueError(
        f'calls_per_problem is {calls_per_problem}; expected at least 0, or '
        'None for no cap'
      )
    self.calls_per_problem = calls_per_problem
    self.roles: dict[str, Usage] = {}
    self.problems: dict[str, int] = {}

  def remaining(self, problem: str = '') -> float:
    """Returns the calls left for a problem; infinity without a cap."""
    if self.calls_per_problem is None:
      return float('inf')
    return self.calls_per_problem - self.problems.get(problem, 0)

  def reserve(self, role: str, n: int = 1, problem: str = '') -> None:
    """Reserves `n` calls from the budget of a problem, all of them or none.

    Raises:
      BudgetExceeded: fewer than `n` calls are left; nothing was reserved.
    """
    if n < 0:
      raise ValueError(f'number of calls is {n}; expected at least 0')
    if n > self.remaining(problem):
      raise BudgetExceeded(
        f'{n} {role} call(s) asked for problem {problem!r}, but '
        f'{self.remaining(problem)} of {self.calls_per_problem} are left'
      )
    self.problems[problem] = self.problems.get(problem, 0) + n
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
