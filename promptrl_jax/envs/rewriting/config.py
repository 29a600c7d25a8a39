"""Settings of the rewriting environment."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from promptrl_jax.prompts.meta import MetaConfig
from promptrl_jax.rewards import guards, registry
from promptrl_jax.rewards.registry import RewardFn

_SOLVED = ('solved_bonus', 'share_weight', 'word_cost')


@dataclasses.dataclass(frozen=True)
class RewritingConfig:
  """Settings of the environment.

  Attributes:
    meta: request for a better question or instruction.
    examples: examples of an instruction in one batch; 0 for all.
    label_prefix: text between a prompt and a right answer that is scored.
    reward: name of the reward, one of `rewards.registry.REWARDS`.
    reward_options: options of that reward.
    solved_bonus, share_weight, word_cost: options of the reward `solved`.
    allow_keep: whether an empty rewrite leaves the statement as it is; else it
      is flagged.
    background: whether the frozen model is asked in a thread of its own. That
      suits a server; a model on the training device is asked by the caller.
      Rows that hang or raise are then asked again one by one.
    timeout_s: seconds without any result after which the rest is dropped. In
      the background: seconds after which the rows of a batch are asked one by
      one; rows that hang take four times as long together at most.
    guards: bounds beyond which a rewrite is flagged.
  """

  meta: MetaConfig = MetaConfig()
  examples: int = 0
  label_prefix: str = '\n'
  reward: str = 'solved'
  reward_options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  solved_bonus: float = 1.0
  share_weight: float = 0.0
  word_cost: float = 0.0
  allow_keep: bool = True
  background: bool = False
  timeout_s: float = 120.0
  guards: guards.GuardsConfig = guards.GuardsConfig()

  def __post_init__(self):
    for name in _SOLVED:
      if not getattr(self, name) >= 0:
        raise ValueError(f'{name}={getattr(self, name)}: expected 0 or more')
    if self.examples < 0:
      raise ValueError(
        f'examples={self.examples}: expected 0 for all of a task, or more'
      )
    if not self.timeout_s > 0:
      raise ValueError(f'timeout_s={self.timeout_s}: expected more than 0')
    make_reward_fn(self)  # Refuses unknown names and options.
    if self.reward != 'solved':
      defaults = {f.name: f.default for f in dataclasses.fields(self)}
      for name in _SOLVED:
        if getattr(self, name) != defaults[name]:
          raise ValueError(
            f'{name}={getattr(self, name)} is an option of the reward '
            f"'solved', but the reward is {self.reward!r}"
          )
    elif self.solved_bonus == self.share_weight == 0:
      raise ValueError(
        'solved_bonus and share_weight are 0: every reward would be 0'
      )


def make_reward_fn(config: RewritingConfig) -> RewardFn:
  """Returns the reward that the config describes."""
  options = dict(config.reward_options)
  if config.reward == 'solved':
    options = {name: getattr(config, name) for name in _SOLVED} | options
  return registry.make_reward_fn(config.reward, options)
