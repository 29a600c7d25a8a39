"""Programs on visible tests and on tests that the model wrote itself.

Reflexion (arXiv 2303.11366) and EPiC (arXiv 2408.11198) accept a program that
passes self-made tests, and took none at all for a pass. Here a program without
them is `unknown`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Generator, Sequence
from typing import Any

from promptrl_jax.execution.program import TestResult
from promptrl_jax.llm.ask import Tools
from promptrl_jax.llm.attempt import Attempt, Execute, ExecuteJobs
from promptrl_jax.prompts import feedback as feedback_lib
from promptrl_jax.prompts.templates import TestPrompt
from promptrl_jax.rewards import agreement


@dataclasses.dataclass(frozen=True)
class SelfTestsConfig:
  """When tests are asked for, and how many.

  Attributes:
    count: assertions that are asked for and kept at most; 0 asks for none.
    from_budget: fewest calls that are left for tests to be asked for. With
      fewer than 4, nothing could follow from them: the tests, a program, a
      reflection or a new statement, and another program are one call each.
  """

  count: int = 5
  from_budget: int = 4

  def __post_init__(self):
    if self.count < 0:
      raise ValueError(f'count={self.count}: expected 0 tests or more')
    if self.from_budget < 2:
      raise ValueError(
        f'from_budget={self.from_budget}: expected 2 calls or more, since one '
        'must be left for a program'
      )


@dataclasses.dataclass(frozen=True)
class Verdict:
  """What tests say of a program.

  Attributes:
    code: the program, empty if the reply held none.
    visible, generated: results by test.
  """

  code: str
  visible: dict[str, TestResult]
  generated: dict[str, TestResult]

  @property
  def passed(self) -> tuple[bool, ...]:
    """Whether each test is passed, visible ones first."""
    results = (*self.visible.values(), *self.generated.values())
    return tuple(result.status == 'passed' for result in results)

  @property
  def visible_passed(self) -> bool:
    """Whether all visible tests are passed; also if there are none."""
    return all(self.passed[: len(self.visible)])

  @property
  def status(self) -> str:
    """`failed`, `passed`, or `unknown` if no test of the model's is left."""
    if not all(self.passed):
      return 'failed'
    return 'passed' if self.generated else 'unknown'

  @property
  def state(self) -> int:
    """The tests that are passed as the bits of a number, the first lowest."""
    return sum(1 << i for i, passed in enumerate(self.passed) if passed)

  @property
  def failures(self) -> int:
    """Number of tests that are not passed."""
    return self.passed.count(False)

  @property
  def share(self) -> float:
    """Share of the tests that are passed; 0 without any."""
    return sum(self.passed) / len(self.passed) if self.passed else 0.0

  def only(self, tests: Collection[str]) -> Verdict:
    """The same without generated tests that are not among these."""
    kept = {t: r for t, r in self.generated.items() if t in tests}
    return dataclasses.replace(self, generated=kept)

  @property
  def text(self) -> str:
    """What a model is told of the tests."""
    return feedback_lib.results_text(
      [*self.visible, *self.generated],
      [*self.visible.values(), *self.generated.values()],
    )


def write(
  attempt: Attempt, tools: Tools, config: SelfTestsConfig
) -> Generator[Any, Any, tuple[str, ...]]:
  """Asks for tests if something can follow from them; one call or none."""
  problem = attempt.problem
  if not config.count or attempt.budget_left < config.from_budget:
    return ()
  prompt = TestPrompt(
    problem.statement, problem.signature, problem.visible_tests, config.count
  )
  known = problem.visible_tests
  return (yield from tools.write_tests(attempt, prompt, known=known))


def run(
  attempt: Attempt, code: str, tests: tuple[str, ...]
) -> Generator[Any, Any, Verdict]:
  """Runs a program on the visible tests and on those of the model."""
  problem, generated = attempt.problem, {}
  visible = (yield Execute(code)).tests[: len(problem.visible_tests)]
  if tests:
    job = agreement.to_program(
      code, tests, entry_point=problem.entry_point, setup=problem.setup
    )
    (result,) = yield ExecuteJobs((job,))
    generated = dict(zip(tests, result.tests, strict=True))
  return Verdict(
    code, dict(zip(problem.visible_tests, visible, strict=True)), generated
  )


def matrix(
  attempt: Attempt, codes: Sequence[str], tests: Sequence[str]
) -> Generator[Any, Any, agreement.AgreementMatrix]:
  """Runs programs on the same tests of the model, and on no visible one."""
  problem = attempt.problem
  results = yield ExecuteJobs(
    tuple(
      agreement.to_program(
        code, tests, entry_point=problem.entry_point, setup=problem.setup
      )
      for code in codes
    )
  )
  return agreement.agreement_matrix(results, len(tests))
