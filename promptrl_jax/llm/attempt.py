"""What a strategy asks for, and what it has cost so far.

A strategy is a generator: it yields `Ask`, `Execute` and `ExecuteJobs` and is
sent the completion, the verdict or the results. It never holds a model or a
pool, so that a runner can play hundreds of strategies at once and batch what
they ask for.
"""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Generator, Sequence
from typing import Any

from promptrl_jax.execution.call import Call
from promptrl_jax.execution.program import Program, ProgramResult
from promptrl_jax.llm.backend import Completion, Message, Request
from promptrl_jax.prompts import feedback as feedback_lib
from promptrl_jax.types import Problem

CODER, REWRITER = 'coder', 'rewriter'


@dataclasses.dataclass(frozen=True)
class Ask:
  """One call of the model of a role; answered by a `Completion`."""

  role: str
  request: Request


@dataclasses.dataclass(frozen=True)
class Execute:
  """One program to run on the visible tests; answered by a `ProgramResult`.

  On training problems the result also covers the tests that are run for reward;
  they come after the visible ones and no model may be shown them.
  """

  code: str


@dataclasses.dataclass(frozen=True)
class ExecuteJobs:
  """Programs to run on tests or inputs that the strategy made up.

  Answered by a list with the result of each job, in their order: a
  `ProgramResult` of a `Program`, a `CallResult` of a `Call`. Each job has a
  confined process of its own. No model is called, so nothing is charged.
  """

  jobs: tuple[Program | Call, ...]


@dataclasses.dataclass(frozen=True)
class Meet:
  """Waits until no other play has a request; answered by None.

  For rules that count over all problems, which attempts see as their `peers`.
  """


@dataclasses.dataclass
class Attempt:
  """One problem that is being solved, and what it has cost so far.

  Attributes:
    seed: distinguishes the random draws of several attempts.
    budget: most language-model calls, of all roles together.
    asked: prompts that were asked before: they are sampled, not greedy.
    peers: the attempts of all problems that the strategy plays, this one too.
    refused: why the last rewrite was not taken, until its trace row.
    lost: the system failed, so that the attempt says nothing.
    error: why the strategy has no submission; empty if it has one.
  """

  problem: Problem
  seed: int = 0
  budget: int = 1
  row: int = 0
  calls: int = 0
  attempts: int = 0
  prompt_tokens: int = 0
  completion_tokens: int = 0
  asked: set[tuple[Message, ...]] = dataclasses.field(default_factory=set)
  sent: list[tuple[Ask, Completion]] = dataclasses.field(default_factory=list)
  trace: list[dict[str, Any]] = dataclasses.field(default_factory=list)
  peers: Sequence[Attempt] = dataclasses.field(
    default=(), repr=False, compare=False
  )
  refused: str = ''
  lost: bool = False
  error: str = ''

  @property
  def budget_left(self) -> int:
    return self.budget - self.calls

  def draw_seed(self) -> int:
    """Seed of the next draw: of the attempt, the problem and the calls."""
    return zlib.crc32(
      f'{self.seed}/{self.problem.task_id}/{self.calls}'.encode()
    )

  def charge(self, asked: Ask, completion: Completion) -> None:
    self.calls += 1
    self.prompt_tokens += completion.prompt_tokens
    self.completion_tokens += completion.completion_tokens
    self.sent.append((asked, completion))

  def note(self, action: str, **fields: Any) -> None:
    """Adds a trace row for anything but a program that was run."""
    cost = len(self.sent)
    no_program = {'code': None, 'status': '', 'error_type': '', 'feedback': ''}
    row = self.trace_row(action, [], cost=cost, **(no_program | fields))
    self.trace.append(row)

  def record(self, code: str, result: ProgramResult) -> None:
    """Adds a trace row for a program that was run."""
    visible = result.tests[: len(self.problem.visible_tests)]
    failures = [test for test in visible if test.status != 'passed']
    self.trace.append(
      self.trace_row(
        action='execute',
        cost=len(self.sent),
        code=code,
        status=failures[0].status if failures else result.status,
        error_type=failures[0].error_type if failures else '',
        visible=[test.status == 'passed' for test in visible],
        feedback=feedback_lib.feedback_text(visible),
      )
    )

  def record_rest(self) -> None:
    """Adds a trace row for calls after which no program was run, if any."""
    if self.sent:
      self.note('ask')

  def trace_row(
    self, action: str, visible: list[bool], **fields: Any
  ) -> dict[str, Any]:
    """One row of `trace.jsonl`, with the requests sent since the last one.

    `answers` are the completions of the requests in `sent`, in their order: the
    backend `replay` gives them again. There is a `refused` if a rewrite among
    them was.
    """
    row = {
      'row': self.row,
      'task_id': self.problem.task_id,
      'seed': self.seed,
      'budget': self.budget,
      'step': len(self.trace),
      'action': action,
      'prompt': None,
      'sent': [
        {'role': ask.role, **ask.request.to_fields()} for ask, _ in self.sent
      ],
      'answers': [answer.to_fields() for _, answer in self.sent],
      'visible': visible,
      'visible_passed': bool(visible) and all(visible),
      'reward': 0.0,
      'terminated': False,
      'truncated': False,
    }
    if self.refused:
      row['refused'] = self.refused
    self.sent, self.refused = [], ''
    return row | fields


# Yields requests, is sent their answers, returns the submitted program.
Play = Generator[Any, Any, str]
