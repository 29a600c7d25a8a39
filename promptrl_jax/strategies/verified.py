"""Any strategy, with a verifier that chooses what is submitted.

  strategy ──> programs ──visible tests──> those that pass ──mutated inputs──┐
                                  confidence of their completions ───────────┴─>
    features --verifier--> P(hidden tests pass) --> the most probable program

The strategy is told to spend all its calls: where visible tests do not decide,
a program that passes them may be wrong, and a later one right. Without visible
tests all programs pass. Without a program that passes, what the strategy
returns is submitted.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Generator, Sequence
from typing import Any

import numpy as np

from promptrl_jax.execution import Call, CallResult
from promptrl_jax.llm.ask import Tools
from promptrl_jax.llm.attempt import CODER, Ask, Attempt, Execute, ExecuteJobs
from promptrl_jax.llm.backend import Completion
from promptrl_jax.rewards.inputs import mutated_calls
from promptrl_jax.rewards.verifier import Candidate, Verifier, features
from promptrl_jax.strategies.base import Play, Plays, Strategy
from promptrl_jax.types import Problem

_INPUTS = 16  # that programs are compared on


@dataclasses.dataclass
class Written:
  """What a play has written so far.

  Attributes:
    codes: of all programs, in order.
    passing: those that pass the visible tests, with their places in `codes`.
  """

  codes: list[str] = dataclasses.field(default_factory=list)
  passing: list[tuple[int, Candidate]] = dataclasses.field(default_factory=list)


# (attempt, what the strategy returned, what it has written) -> submission
SubmitFn = Callable[[Attempt, str, Written], str]


class Watched:
  """Plays another strategy to its last call; what is submitted is chosen then.

  `submit_fn` chooses it.
  """

  def __init__(self, strategy: Strategy, submit_fn: SubmitFn):
    self._strategy = strategy
    self._submit_fn = submit_fn

  def start(
    self, problems: Sequence[Problem], tools: Tools, *, budget: int, seed: int
  ) -> Plays:
    tools = dataclasses.replace(tools, goes_on=True)
    plays = self._strategy.start(problems, tools, budget=budget, seed=seed)
    return [(attempt, self._play(attempt, play)) for attempt, play in plays]

  def _play(self, attempt: Attempt, play: Play) -> Play:
    returned, written = yield from watch(attempt, play)
    return self._submit_fn(attempt, returned, written)


class Verified(Watched):
  """Plays another strategy and submits what the verifier prefers."""

  def __init__(self, strategy: Strategy, verifier: Verifier):
    super().__init__(strategy, functools.partial(_most_probable, verifier))


def _most_probable(
  verifier: Verifier, attempt: Attempt, returned: str, written: Written
) -> str:
  if not written.passing:
    return returned
  candidates = [candidate for _, candidate in written.passing]
  rows = features(candidates, len(written.codes))
  chances = verifier.probabilities(rows)
  chosen = candidates[int(np.argmax(chances))].code
  attempt.note(
    'verify',
    submission=chosen,
    probabilities=[round(float(chance), 4) for chance in chances],
  )
  return chosen


def watch(
  attempt: Attempt, play: Play
) -> Generator[Any, Any, tuple[str, Written]]:
  """Plays on, and notes the programs and what is known of them."""
  problem, written = attempt.problem, Written()
  visible = len(problem.visible_tests)
  last: tuple[Ask, Completion] | None = None
  go_on: Callable[[], Any] = lambda: next(play)
  while True:
    try:
      request = go_on()
    except StopIteration as end:
      returned = end.value
      break
    try:
      answer = yield request
    except Exception as error:  # Such as a call beyond the budget.
      go_on = functools.partial(play.throw, error)
      continue
    go_on = functools.partial(play.send, answer)
    if isinstance(request, Ask) and request.role == CODER:
      last = request, answer
    elif isinstance(request, Execute):
      verdicts = answer.tests[:visible]
      if all(test.status == 'passed' for test in verdicts):
        found = _candidate(request.code, last)
        written.passing.append((len(written.codes), found))
      written.codes.append(request.code)
      last = None
  yield from _run_on_inputs(attempt, written)
  return returned, written


def _candidate(code: str, last: tuple[Ask, Completion] | None) -> Candidate:
  if last is None:
    return Candidate(code)
  (ask, completion) = last
  sure = completion.confidence
  return Candidate(
    code,
    certainty=None if sure is None else dataclasses.astuple(sure),
    tokens=completion.completion_tokens,
    greedy=ask.request.temperature == 0,
  )


def _run_on_inputs(attempt: Attempt, written: Written) -> Play:
  """Looks up what the passing programs compute; equal ones are run once."""
  problem = attempt.problem
  inputs = mutated_calls(
    problem.visible_tests,
    problem.entry_point,
    _INPUTS,
    attempt.seed,
  )
  codes = list(dict.fromkeys(c.code for _, c in written.passing))
  if not inputs or not codes:
    return ''
  calls = tuple(
    Call(code, inputs, problem.setup, problem.entry_point) for code in codes
  )
  results: Sequence[CallResult] = yield ExecuteJobs(calls)
  outcomes = dict(zip(codes, results, strict=True))
  written.passing = [
    (place, dataclasses.replace(found, outcomes=outcomes[found.code]))
    for place, found in written.passing
  ]
  return ''
