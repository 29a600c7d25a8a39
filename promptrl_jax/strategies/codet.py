"""CodeT: programs and tests of one model, picked by their agreement.

Chen et al. 2022, CodeT: Code Generation with Generated Tests, arXiv 2207.10397.

  budget --test_share--> requests for tests ──> tests, checked and distinct ─┐
         --the rest----> programs --visible tests--> the best of them ───────┴─>
    consensus sets --|programs| * |tests|--> one program

A call that writes tests is paid for as one that writes a program, so at few
calls tests have to be worth the programs that they take the place of.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from promptrl_jax.llm.ask import Tools, coder_prompt
from promptrl_jax.llm.attempt import Attempt, Play
from promptrl_jax.prompts.templates import TestPrompt
from promptrl_jax.rewards import agreement
from promptrl_jax.strategies import self_tests
from promptrl_jax.strategies.fewshot import best_of_n
from promptrl_jax.strategies.sampled import sample_program


@dataclasses.dataclass(frozen=True)
class CodeTConfig:
  """How the budget is divided.

  Attributes:
    test_share: of the budget that asks for tests, in calls, rounded down: by
      default none of 1 and 2 calls, one of 4, two of 8.
    tests_per_call: assertions that are asked for and kept of one reply; the
      paper keeps the first five, too.
  """

  test_share: float = 0.25
  tests_per_call: int = 5

  def __post_init__(self):
    if not 0 <= self.test_share < 1:
      raise ValueError(
        f'test_share={self.test_share}: expected a share in [0, 1), since '
        'calls must be left for programs'
      )
    if self.tests_per_call < 1:
      raise ValueError(
        f'tests_per_call={self.tests_per_call}: expected 1 or more'
      )


def codet_with(config: CodeTConfig) -> Callable[[Attempt, Tools], Play]:
  """Returns the strategy with other settings than `codet` has."""

  def play(attempt: Attempt, tools: Tools) -> Play:
    problem, tests = attempt.problem, ()
    request = TestPrompt(
      problem.statement,
      problem.signature,
      problem.visible_tests,
      config.tests_per_call,
    )
    for _ in range(int(attempt.budget * config.test_share)):
      tests += yield from tools.write_tests(
        attempt, request, known=(*problem.visible_tests, *tests)
      )
    if not tests:  # Nothing is known of any program but the visible tests.
      return (yield from best_of_n(attempt, tools))
    prompt, samples = coder_prompt(attempt), []
    for _ in range(attempt.budget_left):
      samples.append((yield from sample_program(attempt, tools, prompt)))
    most = max(passed for _, passed in samples)
    codes = [code for code, passed in samples if passed == most]
    passed, judged = yield from self_tests.matrix(attempt, codes, tests)
    sets = agreement.consensus_sets(passed, judged)
    chosen = codes[sets[0].programs[0]]
    attempt.note(
      'select',
      submission=chosen,
      tests=tests,
      scores=[group.score for group in sets],
    )
    return chosen

  return play


codet = codet_with(CodeTConfig())
