"""Plays many strategies at once and batches what they ask for.

  plays ──> Ask(rewriter) ──one call──┐
        ──> Ask(coder)    ──one call──┼──> each play goes on with its answer
        ──> Execute       ──one call──┤
        ──> ExecuteJobs   ──one call──┤
        ──> Decide        ──one call──┘

Models are served in the order of `backends` and the pool after them, so that
plays that ask one model more than others catch up before the next one is
called: a step of N episodes costs at most one call of each model and one of the
pool. Plays that wait to `Meet` the others go on when nothing else is asked for.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from promptrl_jax.envs.step_limit import StepAborted, StepLimits, StepTimeout
from promptrl_jax.execution import Call, CallResult, Program, ProgramResult
from promptrl_jax.llm.attempt import (
  Ask,
  Attempt,
  Execute,
  ExecuteJobs,
  Meet,
  Play,
)
from promptrl_jax.llm.backend import Backend, BackendError
from promptrl_jax.llm.ledger import BudgetExceeded, Ledger
from promptrl_jax.operators import Decide
from promptrl_jax.types import Problem

# Requests of one play, beyond which it is taken to loop.
MOST_REQUESTS = 1000
# A failure of the system is never one of the strategy.
_SYSTEM = (BackendError, MemoryError)
_TIMEOUTS = (StepTimeout, StepAborted)


class Pool(Protocol):
  """An execution pool, or a wrapper of one."""

  def run(self, programs: Sequence[Program]) -> list[ProgramResult]: ...

  def evaluate(self, calls: Sequence[Call]) -> list[CallResult]: ...


@dataclasses.dataclass
class ActivePlay:
  """One play in progress.

  Attributes:
    attempt: what it is charged to.
    play: the strategy's generator.
    waiting: the request that it waits for an answer to; None once it ended.
    submission: the program that it handed in.
    requests: so far.
    strategy: what it is a play of; those of one share the limit of a step.
  """

  attempt: Attempt
  play: Play
  waiting: Any = None
  submission: str = ''
  requests: int = 0
  strategy: Any = None


class Runner:
  """Serves the requests of plays, those of the first backend first.

  Attributes:
    ledger: calls, tokens and seconds of each role.
    execute_seconds: wall time spent in the pool.
  """

  def __init__(
    self,
    backends: Mapping[str, Backend],
    pool: Pool,
    *,
    strict: bool = False,
  ):
    """Puts the parts together.

    Where it is `strict`, what a play raises passes on up. Otherwise the play
    ends with an error in its attempt, and the others go on.
    """
    self.backends = backends
    self.ledger = Ledger()  # a cap per attempt is checked here, call by call
    self.execute_seconds = 0.0
    self._pool = pool
    self._strict = strict
    self._limits = StepLimits()

  def start(
    self,
    plays: Sequence[tuple[Attempt, Play]],
    strategies: Sequence[Any] | None = None,
  ) -> list[ActivePlay]:
    """Runs each play up to its first request.

    Args:
      plays: generators, and what they are charged to.
      strategies: of which each is a play; None: all of the same one.
    """
    strategies = [None] * len(plays) if strategies is None else strategies
    actives = [
      ActivePlay(attempt, play, strategy=strategy)
      for (attempt, play), strategy in zip(plays, strategies, strict=True)
    ]
    for active in actives:
      self._advance(active, lambda play: next(play))
    return actives

  def run(
    self,
    plays: Sequence[tuple[Attempt, Play]],
    strategies: Sequence[Any] | None = None,
  ) -> list[ActivePlay]:
    """Plays all to their end; arguments as of `start`."""
    actives = self.start(plays, strategies)
    self.serve(actives)
    return actives

  def answer(self, active: ActivePlay, value: Any) -> None:
    """Sends the answer to what a play waits for, up to its next request."""
    self._advance(active, lambda play: play.send(value))

  def serve(self, plays: Sequence[ActivePlay]) -> None:
    """Answers requests until none is left but choices without a policy."""
    while True:
      waiting = [active for active in plays if active.waiting is not None]
      if not (self._serve_policies(waiting) or self._serve_models(waiting)):
        programs = [s for s in waiting if isinstance(s.waiting, Execute)]
        batches = [s for s in waiting if isinstance(s.waiting, ExecuteJobs)]
        meeting = [s for s in waiting if isinstance(s.waiting, Meet)]
        if programs:
          self._execute(programs)
        elif batches:
          self._execute_jobs(batches)
        elif meeting:
          for active in meeting:
            self.answer(active, None)
        else:
          return

  def _serve_policies(self, waiting: Sequence[ActivePlay]) -> bool:
    """Lets one policy choose for all rows that carry it."""
    deciding = [a for a in waiting if isinstance(a.waiting, Decide)]
    policies = [a.waiting.policy for a in deciding]
    policy = next((p for p in policies if p is not None), None)
    if policy is None:
      return False
    rows = [active for active in deciding if active.waiting.policy is policy]
    names = policy([active.waiting.episode for active in rows])
    for active, name in zip(rows, names, strict=True):
      self.answer(active, name)
    return True

  def _serve_models(self, waiting: Sequence[ActivePlay]) -> bool:
    """One batched call of the first model that is waited for."""
    for role, backend in self.backends.items():
      rows = [
        active
        for active in waiting
        if isinstance(active.waiting, Ask) and active.waiting.role == role
      ]
      if rows:
        self._complete(role, backend, rows)
        return True
    return False

  def _complete(
    self, role: str, backend: Backend, rows: Sequence[ActivePlay]
  ) -> None:
    asks = [_in_scope(active) for active in rows]
    self.ledger.reserve(role, len(rows))
    started = time.perf_counter()
    completions = backend.complete([ask.request for ask in asks])
    self.ledger.record(role, completions, time.perf_counter() - started)
    for active, ask, completion in zip(rows, asks, completions, strict=True):
      active.attempt.charge(ask, completion)
      self.answer(active, completion)

  def _execute(self, rows: Sequence[ActivePlay]) -> None:
    started = time.perf_counter()
    results = self._pool.run(
      [to_program(a.attempt.problem, a.waiting.code) for a in rows]
    )
    self.execute_seconds += time.perf_counter() - started
    for active, result in zip(rows, results, strict=True):
      if result.status == 'infra_error':
        active.attempt.lost = True
        self._end(active)
      else:
        active.attempt.attempts += 1
        active.attempt.record(active.waiting.code, result)
        self.answer(active, result)

  def _execute_jobs(self, rows: Sequence[ActivePlay]) -> None:
    jobs = [job for active in rows for job in active.waiting.jobs]
    started = time.perf_counter()
    verdicts = iter(self._pool.run([j for j in jobs if isinstance(j, Program)]))
    values = iter(self._pool.evaluate([j for j in jobs if isinstance(j, Call)]))
    self.execute_seconds += time.perf_counter() - started
    for active in rows:
      results = [
        next(verdicts if isinstance(job, Program) else values)
        for job in active.waiting.jobs
      ]
      if any(result.status == 'infra_error' for result in results):
        active.attempt.lost = True
        self._end(active)
      else:
        self.answer(active, results)

  def _advance(self, active: ActivePlay, go_on: Callable[[Play], Any]) -> None:
    """Lets a play go on to its next request, or to its end."""
    limit = self._limits.of(active.strategy)
    try:
      with limit:
        active.waiting = go_on(active.play)
        while (error := self._refusal(active)) is not None:
          # A play may catch this and hand in what it has.
          active.waiting = active.play.throw(error)
    except StopIteration as end:
      active.waiting = None
      self._take(active, end.value)
    except _SYSTEM:
      raise
    except (Exception, StepAborted) as error:
      # The limit of a step in which this runner is used ends that step.
      is_of_caller = not limit.was_reached and isinstance(error, _TIMEOUTS)
      if self._strict or is_of_caller:
        raise
      self._end(active, f'{type(error).__name__}: {error}')

  def _refusal(self, active: ActivePlay) -> Exception | None:
    """Why the request of a play cannot be served; None if it can.

    Raises:
      RuntimeError: the play does not come to an end.
    """
    active.requests += 1
    if active.requests > MOST_REQUESTS:
      raise RuntimeError(
        f'{MOST_REQUESTS} requests without a submission: the strategy loops'
      )
    asked, attempt = active.waiting, active.attempt
    if not isinstance(asked, Ask):
      if isinstance(asked, Execute | Decide | Meet):
        return None
      if isinstance(asked, ExecuteJobs) and all(
        isinstance(job, Program | Call) for job in asked.jobs
      ):
        return None
      return TypeError(
        f'yielded {asked!r:.80}: expected Ask, Execute, ExecuteJobs of '
        'Program and Call, Decide or Meet'
      )
    if asked.role not in self.backends:
      return ValueError(
        f'role {asked.role!r}: expected one of {", ".join(self.backends)}'
      )
    if attempt.budget_left < 1:
      return BudgetExceeded(
        f'a call of the {asked.role} beyond the budget of {attempt.budget}'
      )
    return None

  def _take(self, active: ActivePlay, value: Any) -> None:
    """Takes the submission of a play that has ended."""
    active.attempt.record_rest()
    if isinstance(value, str) and value.strip():
      active.submission = value
    elif value is None or isinstance(value, str):
      active.attempt.error = active.attempt.error or 'submitted nothing'
    else:
      active.attempt.error = (
        f'submitted a {type(value).__name__}: expected the text of a program'
      )

  def _end(self, active: ActivePlay, error: str = '') -> None:
    active.waiting, active.attempt.error = None, error
    if not active.attempt.lost:
      active.attempt.record_rest()
    active.play.close()


def _in_scope(active: ActivePlay) -> Ask:
  """What a play asks, for answers of the split of its problem alone."""
  scope = active.attempt.problem.split
  request = dataclasses.replace(active.waiting.request, scope=scope)
  return dataclasses.replace(active.waiting, request=request)


def to_program(problem: Problem, code: str) -> Program:
  """The program with all tests that may be run, visible ones first."""
  return Program(
    code=code,
    tests=problem.visible_tests + problem.reward_tests,
    setup=problem.setup,
    entry_point=problem.entry_point,
  )
