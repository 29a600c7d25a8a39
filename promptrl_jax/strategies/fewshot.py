"""Few-shot prompting: the nearest solved tasks stand before the problem.

The first answer is greedy; while the visible tests fail, others are sampled.
For a weak coder this is the strongest rival that learns nothing.
"""

from __future__ import annotations

import dataclasses

from promptrl_jax.llm.ask import Attempt, Execute, Play, Tools, coder_prompt
from promptrl_jax.operators import MOST_EXAMPLES


def fewshot(attempt: Attempt, tools: Tools) -> Play:
  """Asks with worked examples until the visible tests pass.

  Raises:
    ValueError: the tools have no library of examples.
  """
  library = tools.options.get('examples')
  if library is None:
    raise ValueError(
      "fewshot needs solved tasks: expected tools.options['examples'], an "
      'ExampleLibrary'
    )
  prompt = dataclasses.replace(
    coder_prompt(attempt),
    examples=library.nearest(attempt.problem, MOST_EXAMPLES),
  )
  best, most = '', -1
  while attempt.budget_left:
    code = yield from tools.write_program(attempt, prompt)
    result = yield Execute(code)
    count = len(attempt.problem.visible_tests)
    passed = sum(t.status == 'passed' for t in result.tests[:count])
    if passed > most:
      best, most = code, passed
    if passed == count:
      break
  return best
