"""Settings of the rewriting environment, and the reward that they describe."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from promptrl_jax.execution import ProgramResult
from promptrl_jax.prompts import templates
from promptrl_jax.rewards import guards
from promptrl_jax.tasks import splits
from promptrl_jax.types import Task

# (task, rewrite, verdict on the program that it led to) -> reward
RewardFn = Callable[[Task, str, ProgramResult], float]


@dataclasses.dataclass(frozen=True)
class RewritingConfig:
  """Settings of the environment.

  Attributes:
    protocol: which tests the coder is shown; all are run.
    template: how requests are written; see `prompts.templates`.
    max_tokens: most tokens of a program.
    temperature: of the coder; at 0 it is greedy.
    top_p: nucleus mass of the coder.
    solved_bonus: reward if every test passes.
    share_weight: weight of the share of tests that pass.
    word_cost: subtracted for each word of the rewrite; what is left of a reward
      is at least 0, so that a flagged rewrite is never the better one.
    allow_keep: whether an empty rewrite leaves the statement as it is; else it
      is flagged.
    timeout_s: seconds without any verdict after which the rest is dropped.
    guards: bounds of what is flagged.
  """

  protocol: str = 'visible1'
  template: str = 'plain'
  max_tokens: int = 80
  temperature: float = 0.0
  top_p: float = 1.0
  solved_bonus: float = 1.0
  share_weight: float = 0.0
  word_cost: float = 0.0
  allow_keep: bool = False
  timeout_s: float = 120.0
  guards: guards.GuardConfig = guards.DEFAULT

  def __post_init__(self):
    if self.template not in templates.TEMPLATES:
      raise ValueError(
        f'template {self.template!r}: expected one of '
        f'{sorted(templates.TEMPLATES)}'
      )
    if self.protocol not in splits.PROTOCOLS:
      raise ValueError(
        f'protocol {self.protocol!r}: expected one of {splits.PROTOCOLS}'
      )
    for name in ('solved_bonus', 'share_weight', 'word_cost', 'temperature'):
      if not getattr(self, name) >= 0:
        raise ValueError(f'{name}={getattr(self, name)}: expected 0 or more')
    if self.solved_bonus == self.share_weight == 0:
      raise ValueError(
        'solved_bonus and share_weight are 0: every reward would be 0'
      )
    if not self.timeout_s > 0:
      raise ValueError(f'timeout_s={self.timeout_s}: expected more than 0')


def make_reward_fn(config: RewritingConfig) -> RewardFn:
  """The reward that the config describes."""

  def reward_fn(task: Task, rewrite: str, verdict: ProgramResult) -> float:
    del task
    value = config.solved_bonus * verdict.passed
    value += config.share_weight * (verdict.score or 0.0)
    return max(0.0, value - config.word_cost * len(rewrite.split()))

  return reward_fn
