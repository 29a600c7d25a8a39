"""What calls were made and what they cost, with a cap that cannot be passed.

The unit of a budget is one language-model call of any role. A call is reserved
before it is made, so that a cap is never exceeded by a single call; tokens and
seconds are recorded beside it when the answer is there. Two ledgers make the
report: one for optimisation (paid once), one for inference (per test problem).

  ledger = Ledger(calls_per_problem=8)
  ledger.reserve('generate', len(requests), problem='mbpp/11')
  completions = backend.complete(requests)
  ledger.record('generate', completions, seconds=elapsed)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from promptrl_jax.llm.backend import Completion


class BudgetExceeded(RuntimeError):
  """A reservation was refused; no call has been made."""


@dataclasses.dataclass
class Usage:
  """What was spent.

  Attributes:
    calls: language-model calls reserved and not released.
    prompt_tokens, completion_tokens: as the backend reported them.
    seconds: wall time of the batched calls.
  """

  calls: int = 0
  prompt_tokens: int = 0
  completion_tokens: int = 0
  seconds: float = 0.0

  def __add__(self, other: Usage) -> Usage:
    return Usage(
      self.calls + other.calls,
      self.prompt_tokens + other.prompt_tokens,
      self.completion_tokens + other.completion_tokens,
      self.seconds + other.seconds,
    )

  def money(self, prompt_price: float, completion_price: float) -> float:
    """Price of the tokens; prices are per million tokens."""
    prompt = self.prompt_tokens * prompt_price
    return (prompt + self.completion_tokens * completion_price) / 1e6


class Ledger:
  """Call counts per problem against a cap, and usage per role.

  Attributes:
    calls_per_problem: most calls of all roles together for one problem; `None`
      counts without a cap.
    roles: usage of each role (`generate`, `rewrite`, `reflect`, ...).
    problems: calls made for each problem.
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
    """Calls left for a problem; infinity without a cap."""
    if self.calls_per_problem is None:
      return float('inf')
    return self.calls_per_problem - self.problems.get(problem, 0)

  def reserve(self, role: str, n: int = 1, problem: str = '') -> None:
    """Takes n calls from the budget of a problem, all of them or none.

    Raises:
      BudgetExceeded: fewer than n calls are left; nothing was taken.
    """
    _check_count(n)
    if n > self.remaining(problem):
      raise BudgetExceeded(
        f'{n} {role} call(s) asked for problem {problem!r}, but '
        f'{self.remaining(problem)} of {self.calls_per_problem} are left'
      )
    self._add_calls(role, n, problem)

  def release(self, role: str, n: int = 1, problem: str = '') -> None:
    """Gives back reserved calls that the system, not the model, failed."""
    _check_count(n)
    held = min(
      self.problems.get(problem, 0), self.roles.get(role, Usage()).calls
    )
    if n > held:
      raise ValueError(
        f'cannot release {n} {role} call(s) of problem {problem!r}: at most '
        f'{held} are reserved'
      )
    self._add_calls(role, -n, problem)

  def record(
    self, role: str, completions: Iterable[Completion], seconds: float = 0.0
  ) -> None:
    """Adds tokens and time of calls that were reserved before."""
    usage = self.roles.setdefault(role, Usage())
    for completion in completions:
      usage.prompt_tokens += completion.prompt_tokens
      usage.completion_tokens += completion.completion_tokens
    usage.seconds += seconds

  def total(self) -> Usage:
    """Usage of all roles together."""
    return sum(self.roles.values(), Usage())

  def state_dict(self) -> dict[str, Any]:
    """The counts as plain JSON data; the cap is configuration, not state."""
    return {
      'problems': dict(self.problems),
      'roles': {k: dataclasses.asdict(v) for k, v in self.roles.items()},
    }

  def load(self, state: Mapping[str, Any]) -> None:
    """Replaces the counts by those of a `state_dict`."""
    problems = {str(k): int(v) for k, v in state['problems'].items()}
    roles = {str(k): Usage(**v) for k, v in state['roles'].items()}
    self.problems, self.roles = problems, roles

  def _add_calls(self, role: str, n: int, problem: str) -> None:
    self.problems[problem] = self.problems.get(problem, 0) + n
    self.roles.setdefault(role, Usage()).calls += n


def _check_count(n: int) -> None:
  if n < 0:
    raise ValueError(f'number of calls is {n}; expected at least 0')
