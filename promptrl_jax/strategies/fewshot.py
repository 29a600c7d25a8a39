"""Few-shot prompting: the nearest solved tasks stand before the problem.

The first answer is greedy; while the visible tests fail, others are sampled.
For a weak coder this is the strongest rival that learns nothing. Without any
example it is best-of-n picked by the visible tests: a program that passes them
is picked over all later ones, so that no more need be asked.
"""

from __future__ import annotations

from collections.abc import Callable

from promptrl_jax.llm.ask import Tools, coder_prompt
from promptrl_jax.llm.attempt import Attempt, Play
from promptrl_jax.operators import MOST_EXAMPLES
from promptrl_jax.prompts.examples import ExampleLibrary
from promptrl_jax.strategies.sampled import sample_program

PlayFn = Callable[[Attempt, Tools], Play]


def few_shots(count: int) -> PlayFn:
  """Returns the strategy that shows `count` worked examples."""

  def play(attempt: Attempt, tools: Tools) -> Play:
    shown = _library(tools).nearest(attempt.problem, count) if count else ()
    prompt = coder_prompt(attempt, examples=shown)
    best, most = '', -1
    visible = len(attempt.problem.visible_tests)
    for _ in range(attempt.budget_left):
      code, passed = yield from sample_program(attempt, tools, prompt)
      if passed > most:
        best, most = code, passed
      if visible and passed == visible and not tools.goes_on:
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
best_of_n = few_shots(0)
