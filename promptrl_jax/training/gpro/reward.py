"""What the loop learns from: ratings, or ratings, critics and costs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from promptrl_jax.rewards import hybrid

NAMES = ('rating', 'hybrid')
# (human feedback in [0, 1], what critics expected in [0, 1], the answer)
# -> reward in [0, 1]
RewardFn = Callable[[float, float, str], float]


@dataclasses.dataclass(frozen=True)
class HybridConfig:
  """Terms of the hybrid reward, see `rewards.hybrid.HybridReward`.

  Attributes:
    human: weight of what a person said.
    critic: weight of what the critics expected when the answer was shown.
    tokens: cost of an endless answer.
    token_scale: tokens of an answer at half of that cost.
  """

  human: float = 1.0
  critic: float = 0.8
  tokens: float = 0.1
  token_scale: float = 500.0

  def __post_init__(self):
    if not (self.human > 0 and self.critic >= 0):
      raise ValueError(
        f'human={self.human}, critic={self.critic}: expected a weight above 0 '
        'and one of 0 or more'
      )
    self.formula()

  def formula(self) -> hybrid.HybridReward:
    """The sum of the terms; raises ValueError for a cost that is none."""
    return hybrid.HybridReward(
      human=self.human,
      critic=self.critic,
      coherence=0.0,
      tokens=self.tokens,
      token_scale=self.token_scale,
    )


def make_reward(
  name: str, config: HybridConfig, count_tokens: Callable[[str], int]
) -> RewardFn:
  """Returns the reward of a name.

  `rating` is what the person said. `hybrid` is the sum of `HybridReward`,
  mapped linearly so that its least value is 0 and its largest 1.

  Raises:
    ValueError: there is no reward of that name.
  """
  if name == 'rating':
    return lambda human, expected, text: human
  if name != 'hybrid':
    raise ValueError(f'reward={name!r}: expected one of {", ".join(NAMES)}')
  formula = config.formula()
  lowest, width = -config.tokens, config.human + config.critic + config.tokens

  def reward(human: float, expected: float, text: str) -> float:
    info = {
      hybrid.HUMAN: human,
      hybrid.CRITIC: expected,
      hybrid.TOKENS: count_tokens(text),
    }
    unit = (formula(None, None, info) - lowest) / width
    return min(1.0, max(0.0, unit))

  return reward


def pair_reward(first: float, second: float) -> float:
  """Returns the reward of a pair, in [0, 1], from those of its two answers."""
  return (1 + first - second) / 2


def learned(
  reward_fn: RewardFn,
  value: float,
  kind: str,
  shown: Sequence[tuple[float, str]],
) -> tuple[float, str]:
  """Returns what the loop learns from what a person said: reward and kind.

  Args:
    value: what was said, in [0, 1]; of a pair, how far the first answer is
      preferred.
    kind: one of `replay.KINDS`.
    shown: of the one or two answers, what critics expected, and the text.
  """
  if kind == 'pair':
    (first, one), (second, other) = shown
    return pair_reward(
      reward_fn(value, first, one), reward_fn(1 - value, second, other)
    ), kind
  reward = reward_fn(value, *shown[0])
  # A thumb from which costs were taken off is a number like any other.
  return reward, kind if reward == value else 'rating'
