"""Reflexion as a uniform-cost search over programs.

The variant `reflexion-ucs` of the released code of arXiv 2303.11366. A step to
a program costs the number of tests that it fails, and the program that is
cheapest to reach from the first one is expanded: after one reflection, into
several programs. A program that passes the same tests as one that was expanded
is not. Without a program that passes all, the one with the fewest failures is
submitted.

Unlike there, a program is reflected on when it is expanded, and not when it is
found, so that no call goes to one that never is; and each call counts.
"""

from __future__ import annotations

import dataclasses
import heapq

from promptrl_jax.llm.ask import Tools
from promptrl_jax.llm.attempt import Attempt, Play
from promptrl_jax.strategies import reflexion as reflexion_lib
from promptrl_jax.strategies import self_tests
from promptrl_jax.strategies.reflexion import PlayFn, ReflexionConfig


@dataclasses.dataclass(frozen=True)
class UcsConfig:
  """Settings of the search.

  Attributes:
    reflexion: of each step; its `iterations` bound the programs that are
      expanded. Programs are run, and `submit` is not read.
    expansion: programs that one is expanded into.
    temperature: of these programs.
  """

  reflexion: ReflexionConfig = ReflexionConfig()
  expansion: int = 3
  temperature: float = 0.75

  def __post_init__(self):
    if self.expansion < 1:
      raise ValueError(
        f'expansion={self.expansion}: expected at least one program'
      )
    if not self.temperature > 0:
      raise ValueError(
        f'temperature={self.temperature}: expected more than 0, since programs '
        'at 0 are all the same'
      )
    if not self.reflexion.run_tests:
      raise ValueError(
        'run_tests=False: expected True, since states are sets of tests passed'
      )


def reflexion_ucs_with(config: UcsConfig) -> PlayFn:
  """Returns the strategy with other settings than `reflexion_ucs` has."""
  step = config.reflexion

  def play(attempt: Attempt, tools: Tools) -> Play:
    tests, first = yield from reflexion_lib.first_program(attempt, tools, step)
    warm = dataclasses.replace(
      tools,
      config=dataclasses.replace(
        tools.config,
        first_temperature=config.temperature,
        sample_temperature=config.temperature,
      ),
    )
    memory, best, found = reflexion_lib.remembered(tools), first, 0
    expanded, waiting = set(), [(0, 0, first)]
    for _ in range(step.iterations):
      no_calls = attempt.budget_left < step.calls
      if not waiting or no_calls or best.status == 'passed':
        break
      cost, _, parent = heapq.heappop(waiting)
      expanded.add(parent.state)
      prompt = yield from reflexion_lib.next_prompt(
        attempt, tools, parent, memory, step
      )
      codes = set()
      for _ in range(config.expansion):
        if attempt.budget_left < 1 or best.status == 'passed':
          break
        code = yield from warm.write_program(attempt, prompt)
        if code in codes:
          continue
        codes.add(code)
        verdict = yield from self_tests.run(attempt, code, tests)
        is_new = verdict.state not in expanded
        if is_new:
          found += 1  # Of equal costs, what was found first is expanded first.
          reached = (cost + verdict.failures, found, verdict)
          heapq.heappush(waiting, reached)
        attempt.note('state', state=verdict.state, is_new=is_new)
        best = min(best, verdict, key=lambda v: v.failures)
    return best.code

  return play


reflexion_ucs = reflexion_ucs_with(UcsConfig())
