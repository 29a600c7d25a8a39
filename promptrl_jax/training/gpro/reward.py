"""What the loop learns from: ratings, or ratings, critics and costs.

what a person said ─┐
critics, embeddings ├─> numbers by name ──reward of a name──> mapped to [0, 1]
tokens, safety     ─┘                `rewards.hybrid.REFINEMENT_REWARDS`
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from promptrl_jax.rewards import hybrid
from promptrl_jax.rewards.safety import SafetyFn
from promptrl_jax.rewards.similarity import EmbedFn, similarity_rewards


class Answer(NamedTuple):
  """An answer that was shown, as a reward sees it.

  Attributes:
    query: what was asked.
    text: the answer.
    expected: satisfaction in [0, 1] that critics expected when it was shown.
  """

  query: str
  text: str
  expected: float


# (what a person said, in [0, 1]; the answer) -> reward in [0, 1]
RewardFn = Callable[[float, Answer], float]


class _Numbers(Mapping[str, float]):
  """Numbers by name, each computed when it is asked for."""

  def __init__(self, functions: Mapping[str, Callable[[], float]]):
    self._functions = functions

  def __getitem__(self, name: str) -> float:
    return self._functions[name]()

  def __iter__(self) -> Iterator[str]:
    return iter(self._functions)

  def __len__(self) -> int:
    return len(self._functions)


def make_reward(
  name: str,
  options: Mapping[str, Any],
  *,
  count_tokens: Callable[[str], int],
  embed_fn: EmbedFn,
  safety_fn: SafetyFn,
) -> RewardFn:
  """Returns the reward of a name, mapped linearly from its bounds to [0, 1].

  It is called with the query, the answer, and `info` that has
  `human_feedback`, `critic_score`, `response_coherence`: (1 + cos) / 2 of the
  embeddings of query and answer, 0 of a blank one; `token_efficiency`: the
  answer's tokens; and `safety_penalty`.

  Args:
    name: of `rewards.hybrid.REFINEMENT_REWARDS`.
    options: of that reward.
    safety_fn: what is wrong with an answer, see `rewards.safety`.

  Raises:
    ValueError: see `check_reward`.
  """
  formula, low, high = check_reward(name, options)

  def coherence(query: str, text: str) -> float:
    if not text.strip() or not query.strip():
      return 0.0
    return float(similarity_rewards(embed_fn, [text], [query])[0])

  def reward(human: float, answer: Answer) -> float:
    query, text, expected = answer
    info = _Numbers(
      {
        hybrid.HUMAN: lambda: human,
        hybrid.CRITIC: lambda: expected,
        hybrid.COHERENCE: lambda: coherence(query, text),
        hybrid.TOKENS: lambda: count_tokens(text),
        hybrid.SAFETY: lambda: safety_fn(query, text),
      }
    )
    unit = (formula(query, text, info) - low) / (high - low)
    return min(1.0, max(0.0, unit))

  return reward


def check_reward(
  name: str, options: Mapping[str, Any]
) -> tuple[hybrid.RefinementReward, float, float]:
  """Returns the reward of a name with its options, and its bounds.

  Raises:
    ValueError: there is none of that name, it takes no such option, or it says
      no bounds, so that it cannot be mapped to what critics learn from.
  """
  if name not in hybrid.REFINEMENT_REWARDS:
    raise ValueError(f'reward={name!r}: expected one of {", ".join(bounded())}')
  make = hybrid.REFINEMENT_REWARDS[name]
  known = inspect.signature(make).parameters
  for option in options:
    if option not in known:
      raise ValueError(
        f'reward_options: reward {name!r} has no option {option!r}; expected '
        f'{", ".join(known) or "none"}'
      )
  formula = make(**options)
  low, high = getattr(formula, 'bounds', (-math.inf, math.inf))
  if not (math.isfinite(low) and math.isfinite(high)):
    raise ValueError(
      f'reward={name!r} has no bounds, by which it is mapped to 0 to 1: '
      f'expected one of {", ".join(bounded())}'
    )
  if not low < high:
    raise ValueError(
      f'reward={name!r} is {low:g} whatever is said: expected options with a '
      'weight that is not 0'
    )
  return formula, low, high


def bounded() -> list[str]:
  """Names of the rewards that a loop can learn from."""
  return [
    name
    for name, make in hybrid.REFINEMENT_REWARDS.items()
    if hasattr(make(), 'bounds')
  ]


def pair_reward(first: float, second: float) -> float:
  """Returns the reward of a pair, in [0, 1], from those of its two answers."""
  return (1 + first - second) / 2


def learned(
  reward_fn: RewardFn,
  value: float,
  kind: str,
  shown: Sequence[Answer],
) -> tuple[float, str]:
  """Returns what the loop learns from what a person said: reward and kind.

  Args:
    value: what was said, in [0, 1]; of a pair, how far the first answer is
      preferred.
    kind: one of `replay.KINDS`.
    shown: the one or two answers.
  """
  if kind == 'pair':
    first, second = shown
    return pair_reward(
      reward_fn(value, first), reward_fn(1 - value, second)
    ), kind
  reward = reward_fn(value, shown[0])
  # A thumb from which costs were taken off is a number like any other.
  return reward, kind if reward == value else 'rating'
