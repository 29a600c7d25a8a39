"""Few-shot prompting: the nearest solved tasks stand before the problem.

The first answer is greedy; while the visible tests fail, others are sampled.
For a weak coder this is the strongest rival that learns nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from promptrl_jax.llm.ask import Attempt, Execute, Play, Tools, coder_prompt
from promptrl_jax.operators import MOST_EXAMPLES
from promptrl_jax.prompts.examples import ExampleLibrary

PlayFn = Callable[[Attempt, Tools], Play]


def few_shots(count: int) -> PlayFn:
  """Returns the strategy that shows `count` worked examples."""

  def play(attempt: Attempt, tools: Tools) -> Play:
    shown = _library(tools).nearest(attempt.problem, count) if count else ()
    prompt = coder_prompt(attempt, examples=shown)
    best, most = '', -1
    while attempt.budget_left:
      code = yield from tools.write_program(attempt, prompt)
      result = yield Execute(code)
      visible = result.tests[: len(attempt.problem.visible_tests)]
      passed = sum(test.status == 'passed' for test in visible)
      if passed > most:
        best, most = code, passed
      if visible and passed == len(visible):
        break
    return best

  return play


def _library(tools: Tools) -> ExampleLibrary:
  library = tools.options.get('examples')
  if library is None:
    raise ValueError(
      'few-shot prompting needs solved tasks: expected an ExampleLibrary as '
      "tools.options['examples']"
    )
  return library


fewshot = few_shots(MOST_EXAMPLES)
