"""Rewards of one refinement of a prompt, from numbers that are known of it.

Each is `(previous, new, info) -> float`: two prompts, or their texts, and
numbers by name. `REFINEMENT_REWARDS` names them, and `register` adds one. Those
with `bounds`, the least and the largest value, can be learned from in
`experiments.hybrid`.

  rating          what people say
  hybrid          what people and critic say, minus what it costs
  hybrid_legacy   the same sum with a term for tokens whose sign is wrong
  scalar          one of the numbers
  length_penalty  what a long prompt costs
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sized
from typing import Any, ClassVar

from promptrl_jax.registry import Registry, check_call

Info = Mapping[str, Any]
RefinementReward = Callable[[Any, Any, Info], float]
# What the terms are called in `info`.
HUMAN, CRITIC, COHERENCE, TOKENS, SAFETY = (
  'human_feedback',
  'critic_score',
  'response_coherence',
  'token_efficiency',
  'safety_penalty',
)


@dataclasses.dataclass(frozen=True)
class HumanReward:
  """What people say, alone."""

  bounds: ClassVar[tuple[float, float]] = (0.0, 1.0)

  def __call__(self, previous: Any, new: Any, info: Info) -> float:
    del previous, new
    return _number(info, HUMAN)


@dataclasses.dataclass(frozen=True)
class HybridReward:
  """Five terms: three that are added, and two costs that are subtracted.

    R = human h + critic c + coherence o - tokens n / (n + scale) - safety s

  The cost of n tokens rises from 0 to the weight `tokens`, and is half of it at
  `token_scale` tokens: more tokens never raise the reward.

  Attributes:
    human: weight of `human_feedback`, in [0, 1].
    critic: weight of `critic_score`, in [0, 1].
    coherence: weight of `response_coherence`, in [0, 1].
    tokens: cost of an endless response; `token_efficiency` in `info` is the
      number of tokens.
    safety: cost of a `safety_penalty` of 1.
    token_scale: tokens at half of the cost.
  """

  human: float = 1.0
  critic: float = 0.8
  coherence: float = 0.3
  tokens: float = 0.1
  safety: float = 1.0
  token_scale: float = 500.0

  def __post_init__(self):
    for name in ('tokens', 'safety'):
      if not getattr(self, name) >= 0:
        raise ValueError(
          f'{name}={getattr(self, name)}: expected 0 or more, as a cost is '
          'always subtracted'
        )
    if not self.token_scale > 0:
      raise ValueError(
        f'token_scale={self.token_scale}: expected a number above 0'
      )

  @property
  def bounds(self) -> tuple[float, float]:
    """Least and largest value, of numbers in [0, 1] and any count of tokens."""
    low, high = _bounds(self.human, self.critic, self.coherence)
    return low - self.tokens - self.safety, high

  def __call__(self, previous: Any, new: Any, info: Info) -> float:
    """Returns the reward; what `info` lacks is 0.

    Raises:
      ValueError: a number is not finite, or a cost is negative.
    """
    del previous, new
    tokens, safety = _number(info, TOKENS), _number(info, SAFETY)
    for name, value in ((TOKENS, tokens), (SAFETY, safety)):
      if value < 0:
        raise ValueError(f'{name}={value}: expected 0 or more')
    return (
      self.human * _number(info, HUMAN)
      + self.critic * _number(info, CRITIC)
      + self.coherence * _number(info, COHERENCE)
      - self.tokens * tokens / (tokens + self.token_scale)
      - self.safety * safety
    )


@dataclasses.dataclass(frozen=True)
class LegacyHybridReward:
  """The sum of the first RLPrompt, for the comparison with its numbers.

    R = l1 h + l2 c + l3 o + l4 / (1 + n / 500) + l5 s

  The fourth term is largest for few tokens and has a negative weight, so that
  long responses are preferred. A negative number of tokens has no such term.
  """

  human: float = 1.0
  critic: float = 0.8
  coherence: float = 0.3
  tokens: float = -0.001
  safety: float = -1.0

  @property
  def bounds(self) -> tuple[float, float]:
    """Least and largest value, of numbers in [0, 1] and any count of tokens."""
    weights = self.human, self.critic, self.coherence, self.tokens, self.safety
    return _bounds(*weights)

  def __call__(self, previous: Any, new: Any, info: Info) -> float:
    """Returns the reward; what `info` lacks is 0."""
    del previous, new
    tokens = _number(info, TOKENS)
    brevity = 1 / (1 + tokens / 500) if tokens >= 0 else 0.0
    return (
      self.human * _number(info, HUMAN)
      + self.critic * _number(info, CRITIC)
      + self.coherence * _number(info, COHERENCE)
      + self.tokens * brevity
      + self.safety * _number(info, SAFETY)
    )


@dataclasses.dataclass(frozen=True)
class ScalarReward:
  """The number of a name, or the default where there is none."""

  key: str = 'score'
  default: float = 0.0

  def __call__(self, previous: Any, new: Any, info: Info) -> float:
    del previous, new
    return _number(info, self.key, self.default)


@dataclasses.dataclass(frozen=True)
class LengthPenalty:
  """Minus a cost for each character of the new prompt beyond a length."""

  max_length: int = 2000
  cost: float = 0.001

  def __post_init__(self):
    if not (self.cost >= 0 and self.max_length >= 0):
      raise ValueError(f'{self}: expected a cost and a length of 0 or more')

  def __call__(self, previous: Any, new: Sized, info: Info) -> float:
    del previous, info
    return -self.cost * max(0, len(new) - self.max_length)


def composite(
  *rewards: RefinementReward, weights: tuple[float, ...] | None = None
) -> RefinementReward:
  """Returns the weighted sum of rewards; without weights, their sum.

  Raises:
    ValueError: there are not as many weights as rewards.
  """
  if weights is None:
    weights = (1.0,) * len(rewards)
  if len(weights) != len(rewards):
    raise ValueError(
      f'{len(weights)} weights for {len(rewards)} rewards: expected one each'
    )
  terms = tuple(zip(weights, rewards, strict=True))

  def reward(previous: Any, new: Any, info: Info) -> float:
    return sum(w * fn(previous, new, info) for w, fn in terms)

  return reward


def _bounds(*weights: float) -> tuple[float, float]:
  """Least and largest weighted sum of numbers in [0, 1]."""
  return sum(min(0.0, w) for w in weights), sum(max(0.0, w) for w in weights)


def _number(info: Info, name: str, default: float = 0.0) -> float:
  value = float(info.get(name, default))
  if not math.isfinite(value):
    raise ValueError(f'{name}={value}: expected a finite number')
  return value


def _check(name: str, make: Callable[..., RefinementReward]) -> None:
  """Raises TypeError for a reward that does not take its three arguments."""
  label = f'refinement reward {name!r} with its defaults'
  check_call(label, make(), 'previous', 'new', 'info')


# Name -> what makes the reward of options, which all have defaults.
REFINEMENT_REWARDS: Registry[Callable[..., RefinementReward]] = Registry(
  'refinement reward', _check
)
register = REFINEMENT_REWARDS.register
register('rating', HumanReward)
register('hybrid', HybridReward)
register('hybrid_legacy', LegacyHybridReward)
register('scalar', ScalarReward)
register('length_penalty', LengthPenalty)
