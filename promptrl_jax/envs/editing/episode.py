"""What is known in the course of one episode: one problem being solved."""

from __future__ import annotations

import dataclasses

from promptrl_jax.types import Problem


@dataclasses.dataclass
class Episode:
  """Mutable state of one row of the environment.

  Attributes:
    problem: the problem, without any hidden test.
    seed: tells the random draws of episodes apart.
    budget: most language-model calls.
    statement: the statement as edited so far.
    code: the last program, empty before the first.
    feedback: what its visible tests said.
    status: how the last program did on the visible tests, `start` before it.
    error_type: exception class of its first failure, or empty.
    visible: pass or fail of each visible test, of the last program.
    best_code: the program that would be submitted now.
    best_visible: share of visible tests that it passes; -1 before the first.
    best_share: share of reward tests that it passes (visible outside train).
    calls, attempts, steps: used so far.
    prompt_tokens, completion_tokens: used so far.
    rewrites, mutations: edits since the last reset of the prompt.
    last_action: name, empty before the first.
    repeats: times that the last program had been seen before.
    asked: prompts that have been answered greedily.
    programs: all programs so far.
    terminated, truncated: how the episode ended, if it did.
    lost: the system failed, so that the episode says nothing.
  """

  problem: Problem
  seed: int
  budget: int
  statement: str
  code: str = ''
  feedback: str = ''
  status: str = 'start'
  error_type: str = ''
  visible: tuple[bool, ...] = ()
  best_code: str = ''
  best_visible: float = -1.0
  best_share: float = 0.0
  calls: int = 0
  attempts: int = 0
  steps: int = 0
  prompt_tokens: int = 0
  completion_tokens: int = 0
  rewrites: int = 0
  mutations: int = 0
  last_action: str = ''
  repeats: int = 0
  asked: set = dataclasses.field(default_factory=set)
  programs: list[str] = dataclasses.field(default_factory=list)
  terminated: bool = False
  truncated: bool = False
  lost: bool = False

  @property
  def done(self) -> bool:
    return self.terminated or self.truncated or self.lost

  @property
  def budget_left(self) -> int:
    return self.budget - self.calls

  @property
  def edited(self) -> bool:
    return self.statement != self.problem.statement
