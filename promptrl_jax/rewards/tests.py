"""Step rewards of the controller, functions of the progress of an episode."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class StepRewardConfig:
  """How a step of the prompt-edit environment is rewarded.

  Attributes:
    kind: `legacy`, the reward of PROMIS (arXiv 2605.19102, released code):
      `scale * success` if every test passes, else `scale * penalty`; or
      `shaped`: the share of tests that the submitted program passes and a
      bonus if it passes all, both paid when the episode ends, minus the cost of
      calls.
    success: legacy, reward of a pass.
    penalty: legacy, reward of a failure.
    scale: factor on the reward of either kind.
    share_weight: shaped, weight of the share of tests at the end.
    solved_bonus: shaped, paid at the end if all tests pass.
    call_cost: shaped, subtracted for each language-model call.
    potential: shaped, adds potential-based shaping on the best share so far
      (Ng et al. 1999): it moves reward forward in time and leaves the ranking
      of policies as it is.
  """

  kind: str = 'shaped'
  success: float = 1.0
  penalty: float = -0.1
  scale: float = 1.0
  share_weight: float = 0.0
  solved_bonus: float = 1.0
  call_cost: float = 0.02
  potential: bool = False

  def __post_init__(self):
    if self.kind not in ('legacy', 'shaped'):
      raise ValueError(
        f'reward kind {self.kind!r}: expected "legacy" or "shaped"'
      )


def legacy_reward(passed: bool, config: StepRewardConfig) -> float:
  """+1 for a pass, -0.1 for a failure, times the scale."""
  return config.scale * (config.success if passed else config.penalty)


def shaping(potential: float, next_potential: float, gamma: float) -> float:
  """F(s, s') = gamma * phi(s') - phi(s) (Ng et al. 1999, theorem 1).

  The discounted sum over an episode telescopes to gamma^T phi(s_T) - phi(s_0).
  """
  return gamma * next_potential - potential


def shaped_reward(
  *,
  done: bool,
  share: float,
  previous_share: float,
  calls: int,
  gamma: float,
  config: StepRewardConfig,
) -> float:
  """Reward of one step.

  Args:
    done: whether the episode ends here.
    share: share of tests passed by the best program after the step.
    previous_share: the same before the step.
    calls: language-model calls of the step.
    gamma: discount of the learner, for the potential: share, and 0 at the end.
    config: weights.
  """
  reward = -config.call_cost * calls
  if done:
    reward += config.share_weight * share
    reward += config.solved_bonus * (share == 1.0)
  if config.potential:
    reward += shaping(previous_share, 0.0 if done else share, gamma)
  return config.scale * reward
