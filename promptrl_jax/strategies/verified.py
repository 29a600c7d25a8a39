"""Any strategy, with a verifier that chooses what is submitted, and when.

  strategy ──> programs ──visible tests──> those that pass ──mutated inputs──┐
          └──> tests, if it asks for some ──> the share that each passes ────┤
                                  confidence of their completions ───────────┴─>
    features --verifier--> P(hidden tests pass) --> the most probable program

The strategy is told to spend all its calls: where visible tests do not decide,
a program that passes them may be wrong, and a later one right. It ends before
that where a program is probable enough to be right. Without visible tests all
programs pass. Without a program that passes, what the strategy returns is
submitted.
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
from promptrl_jax.strategies import self_tests
from promptrl_jax.strategies.base import Play, Plays, Strategy
from promptrl_jax.types import Problem

_INPUTS = 16  # that programs are compared on


@dataclasses.dataclass
class Written:
  """What a play has written so far.

  Attributes:
    codes: of all programs, in order.
    passing: those that pass the visible tests, with their places in `codes`.
    known: by a program and tests of the model, what was looked up of it.
  """

  codes: list[str] = dataclasses.field(default_factory=list)
  passing: list[tuple[int, Candidate]] = dataclasses.field(default_factory=list)
  known: dict[tuple[str, tuple[str, ...]], dict[str, Any]] = dataclasses.field(
    default_factory=dict
  )


# (attempt, what the strategy returned, what it has written) -> submission
SubmitFn = Callable[[Attempt, str, Written], str]
EnoughFn = Callable[[Written], bool]


class Watched:
  """Plays another strategy to its last call; what is submitted is chosen then.

  `submit_fn` chooses it. `enough_fn` ends the play before that, if it is given.
  """

  def __init__(
    self,
    strategy: Strategy,
    submit_fn: SubmitFn,
    enough_fn: EnoughFn | None = None,
  ):
    self._strategy = strategy
    self._submit_fn = submit_fn
    self._enough_fn = enough_fn

  def start(
    self, problems: Sequence[Problem], tools: Tools, *, budget: int, seed: int
  ) -> Plays:
    tools = dataclasses.replace(tools, goes_on=True)
    plays = self._strategy.start(problems, tools, budget=budget, seed=seed)
    return [(attempt, self._play(attempt, play)) for attempt, play in plays]

  def _play(self, attempt: Attempt, play: Play) -> Play:
    returned, written = yield from watch(attempt, play, self._enough_fn)
    return self._submit_fn(attempt, returned, written)


class Verified(Watched):
  """Plays another strategy and submits what the verifier prefers.

  It submits as soon as a program is right with probability `stop_at`; with 1,
  after all calls.
  """

  def __init__(
    self, strategy: Strategy, verifier: Verifier, stop_at: float = 1.0
  ):
    def is_enough(written: Written) -> bool:
      return bool(_chances(verifier, written).max(initial=0.0) >= stop_at)

    super().__init__(
      strategy,
      functools.partial(_most_probable, verifier),
      is_enough if stop_at < 1 else None,
    )


def _chances(verifier: Verifier, written: Written) -> np.ndarray:
  """P(hidden tests pass) of each program that passes the visible ones."""
  candidates = [candidate for _, candidate in written.passing]
  return verifier.probabilities(features(candidates, len(written.codes)))


def _most_probable(
  verifier: Verifier, attempt: Attempt, returned: str, written: Written
) -> str:
  if not written.passing:
    return returned
  chances = _chances(verifier, written)
  _, best = written.passing[int(np.argmax(chances))]
  attempt.note(
    'verify',
    submission=best.code,
    probabilities=[round(float(chance), 4) for chance in chances],
  )
  return best.code


def watch(
  attempt: Attempt, play: Play, enough_fn: EnoughFn | None = None
) -> Generator[Any, Any, tuple[str, Written]]:
  """Plays on, and notes the programs and what is known of them.

  Args:
    attempt: of the problem.
    play: of the strategy.
    enough_fn: is asked after each program that passes the visible tests; the
      play ends, and nothing is returned, where it says so.
  """
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
      has_passed = all(test.status == 'passed' for test in verdicts)
      if has_passed:
        found = _candidate(request.code, last)
        written.passing.append((len(written.codes), found))
      written.codes.append(request.code)
      last = None
      if has_passed and enough_fn is not None:
        yield from _look_up(attempt, written)
        if enough_fn(written):
          play.close()
          return '', written
  yield from _look_up(attempt, written)
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


def _look_up(attempt: Attempt, written: Written) -> Play:
  """What the passing programs compute, and which of the model's tests pass.

  Equal programs are run once, and what is known already is not run again.
  """
  problem, tests = attempt.problem, _generated_tests(attempt)
  codes = dict.fromkeys(candidate.code for _, candidate in written.passing)
  due = [code for code in codes if (code, tests) not in written.known]
  if due:
    known: dict[str, dict[str, Any]] = {code: {} for code in due}
    inputs = mutated_calls(
      problem.visible_tests, problem.entry_point, _INPUTS, attempt.seed
    )
    if inputs:
      outcomes: Sequence[CallResult] = yield ExecuteJobs(
        tuple(
          Call(code, inputs, problem.setup, problem.entry_point) for code in due
        )
      )
      for code, computed in zip(due, outcomes, strict=True):
        known[code]['outcomes'] = computed
    if tests:
      passed, _ = yield from self_tests.matrix(attempt, due, tests)
      for code, row in zip(due, passed, strict=True):
        known[code]['generated'] = float(row.mean())
    written.known |= {(code, tests): facts for code, facts in known.items()}
  written.passing = [
    (place, dataclasses.replace(found, **written.known[found.code, tests]))
    for place, found in written.passing
  ]
  return ''


def _generated_tests(attempt: Attempt) -> tuple[str, ...]:
  """The tests that the model was asked for, each once."""
  rows = [row for row in attempt.trace if row['action'] == 'write_tests']
  return tuple(dict.fromkeys(test for row in rows for test in row['tests']))
