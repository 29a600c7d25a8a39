"""The state of one prompt-editing episode: one problem being solved."""

from __future__ import annotations

import collections
import dataclasses
from typing import Any

from promptrl_jax.execution.call import CallResult
from promptrl_jax.execution.program import ProgramResult
from promptrl_jax.llm.ask import coder_prompt
from promptrl_jax.llm.attempt import CODER, Ask, Attempt
from promptrl_jax.llm.backend import Completion, Confidence
from promptrl_jax.prompts import feedback as feedback_lib
from promptrl_jax.prompts import templates
from promptrl_jax.prompts.examples import WorkedExample


@dataclasses.dataclass
class Episode(Attempt):
  """An attempt whose statement is edited step by step.

  Attributes:
    statement: the statement as edited so far.
    position: (index, size) of the problem in its data set, a legacy feature.
    code: the last program, empty before the first.
    feedback: what the visible tests said about it.
    feedbacks: the feedback of every program so far.
    status: of the last program on the visible tests; `start` before it.
    error_type: exception class of its first failure, or empty.
    visible: pass or fail of each visible test, of the last program.
    best_code: the program that would be submitted now.
    best_visible: share of visible tests that it passes; -1 before the first.
    best_share: share of reward tests that it passes (visible outside train).
    steps: so far.
    reward: of the last step.
    rewrites, mutations: edits of each kind that the statement holds.
    last_action: name, empty before the first.
    repeats: how often the last program had been seen before.
    programs: all programs so far.
    outcomes: what each of them computes on made-up inputs, where it is seen.
    history: (statement, rewrites, mutations) before each edit, oldest first.
    uses: how often each operator was applied.
    edited_by: operator that made the statement, empty if nobody changed it.
    tokens, first_tokens: of the statement and of the problem's own, as the
      coder counts them.
    asked_greedily: what the coder was asked greedily, see `asks`; it is sampled
      the next time.
    examples: solved tasks that the prompt shows.
    nearest: solved tasks that it may show, the nearest first.
    confidence: of the last program's completion, where it is measured.
    token_price: what 1,000 tokens cost, in rewards; prompts and completions
      count alike.
    terminated, truncated: how the episode ended, if it did.
  """

  statement: str = ''
  position: tuple[int, int] = (0, 1)
  code: str = ''
  feedback: str = ''
  feedbacks: list[str] = dataclasses.field(default_factory=list)
  status: str = 'start'
  error_type: str = ''
  visible: tuple[bool, ...] = ()
  best_code: str = ''
  best_visible: float = -1.0
  best_share: float = 0.0
  steps: int = 0
  reward: float = 0.0
  rewrites: int = 0
  mutations: int = 0
  last_action: str = ''
  repeats: int = 0
  programs: list[str] = dataclasses.field(default_factory=list)
  outcomes: list[CallResult] = dataclasses.field(default_factory=list)
  history: list[tuple[str, int, int]] = dataclasses.field(default_factory=list)
  uses: collections.Counter[str] = dataclasses.field(
    default_factory=collections.Counter
  )
  edited_by: str = ''
  tokens: int = 0
  first_tokens: int = 0
  asked_greedily: set[tuple[str, str, int]] = dataclasses.field(
    default_factory=set
  )
  examples: tuple[WorkedExample, ...] = ()
  nearest: tuple[WorkedExample, ...] = ()
  confidence: Confidence | None = None
  token_price: float = 0.0
  terminated: bool = False
  truncated: bool = False

  def __post_init__(self):
    self.statement = self.statement or self.problem.statement

  @property
  def done(self) -> bool:
    return self.terminated or self.truncated or self.lost

  @property
  def token_cost(self) -> float:
    """What all tokens so far cost, in rewards."""
    tokens = self.prompt_tokens + self.completion_tokens
    return self.token_price * tokens / 1000

  @property
  def edited(self) -> bool:
    return self.statement != self.problem.statement

  def edit(self, statement: str) -> None:
    """Replaces the statement; `undo` brings the present one back."""
    self.history.append((self.statement, self.rewrites, self.mutations))
    self.statement = statement

  def undo(self) -> None:
    """Takes back the last edit, if there is one."""
    if self.history:
      self.statement, self.rewrites, self.mutations = self.history.pop()

  def undo_all(self) -> None:
    """Goes back to the statement of the problem."""
    self.statement = self.problem.statement
    self.rewrites = self.mutations = 0
    self.history.clear()

  def asks(self, attempt: str = '') -> tuple[str, str, int]:
    """What a request says; `attempt` is a program to be repaired, if any."""
    return self.statement, attempt, len(self.examples)

  def charge(self, asked: Ask, completion: Completion) -> None:
    super().charge(asked, completion)
    if asked.role == CODER:
      self.confidence = completion.confidence

  def record(self, code: str, result: ProgramResult) -> None:
    """Leaves the trace to the step, which knows operator and reward."""

  def prompt(self, *, repairing: bool = False) -> templates.CoderPrompt:
    """A request for a program; a repair shows the last one and its failure."""
    shown = (self.code, self.summary()) if repairing else ('', '')
    return coder_prompt(self, self.statement, *shown, self.examples)

  def summary(self) -> str:
    """The last feedback as a model is shown it."""
    return feedback_lib.summarize_feedback(self.feedback)


@dataclasses.dataclass(frozen=True)
class Decide:
  """A choice of the next operator; answered by its name.

  A policy answers for all rows that carry it; None leaves it to the caller.
  """

  episode: Episode
  policy: Any = None
