"""One sample of a program, for strategies that pick among several."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from promptrl_jax.llm.ask import Tools
from promptrl_jax.llm.attempt import Attempt, Execute
from promptrl_jax.prompts.templates import CoderPrompt


def sample_program(
  attempt: Attempt, tools: Tools, prompt: CoderPrompt
) -> Generator[Any, Any, tuple[str, int]]:
  """Asks for a program and runs it; returns it and the visible tests it passes.

  The first sample of a prompt is greedy. The program is empty, and no call is
  charged, where the coder's context cannot hold the prompt: bound a loop by the
  number of samples and not by what is left of the budget.
  """
  code = yield from tools.write_program(attempt, prompt)
  result = yield Execute(code)
  visible = result.tests[: len(attempt.problem.visible_tests)]
  return code, sum(test.status == 'passed' for test in visible)
