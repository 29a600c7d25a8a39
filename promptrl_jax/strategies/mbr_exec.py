"""Majority vote of programs by what they compute, for models without tests.

Minimum Bayes risk by execution, with the 0/1 loss: Shi et al. 2022, MBR-EXEC,
arXiv 2204.11454; self-consistency of programs. Its inputs are mutated from the
visible tests instead of given.

  visible test --mutate--> inputs ───────────────────────────┐
  programs that pass the visible tests --one process each----┴─> outcomes -->
    the largest group of equal outcomes --> its first program

Unlike best-of-n it goes on sampling after a visible pass.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from promptrl_jax.execution import Call, CallResult
from promptrl_jax.llm.ask import Tools, coder_prompt
from promptrl_jax.llm.attempt import Attempt, ExecuteJobs, Play
from promptrl_jax.rewards import agreement
from promptrl_jax.rewards.inputs import mutated_calls
from promptrl_jax.strategies.fewshot import best_of_n
from promptrl_jax.strategies.sampled import sample_program


@dataclasses.dataclass(frozen=True)
class MBRConfig:
  """When programs agree.

  Attributes:
    inputs: most inputs that programs are compared on.
    enough: programs of one group that end the sampling; 0: only a lead that the
      calls that are left cannot make up does, which never changes what is
      submitted.
  """

  inputs: int = 16
  enough: int = 0

  def __post_init__(self):
    if self.inputs < 1:
      raise ValueError(f'inputs={self.inputs}: expected 1 or more')
    if self.enough < 0:
      raise ValueError(
        f'enough={self.enough}: expected a number of programs, or 0'
      )


def mbr_exec_with(config: MBRConfig) -> Callable[[Attempt, Tools], Play]:
  """Returns the strategy with other settings than `mbr_exec` has."""

  def play(attempt: Attempt, tools: Tools) -> Play:
    problem = attempt.problem
    inputs = mutated_calls(
      problem.visible_tests,
      problem.entry_point,
      config.inputs,
      attempt.draw_seed(),
    )
    if not inputs:  # Programs cannot be told apart but by the visible tests.
      return (yield from best_of_n(attempt, tools))
    prompt, count = coder_prompt(attempt), len(problem.visible_tests)
    best, most = '', -1
    passing: list[str] = []
    values: dict[str, CallResult] = {}  # Equal programs are run once.
    groups: list[tuple[int, ...]] = []
    for _ in range(attempt.budget_left):
      code, passed = yield from sample_program(attempt, tools, prompt)
      if passed > most:
        best, most = code, passed
      if passed < count:
        continue
      if code not in values:
        call = Call(code, inputs, problem.setup, problem.entry_point)
        (values[code],) = yield ExecuteJobs((call,))
      passing.append(code)
      groups = agreement.outcome_groups([values[code] for code in passing])
      if _is_settled(groups, attempt.budget_left, config.enough):
        break
    chosen = passing[groups[0][0]] if groups else best
    attempt.note(
      'select',
      submission=chosen,
      inputs=inputs,
      groups=[len(group) for group in groups],
    )
    return chosen

  return play


def _is_settled(
  groups: Sequence[tuple[int, ...]], left: int, enough: int
) -> bool:
  """Whether `left` more samples are not worth asking for."""
  largest, second, *_ = [*(len(group) for group in groups), 0, 0]
  return largest - second > left or 0 < enough <= largest


mbr_exec = mbr_exec_with(MBRConfig())
