"""Policy and value network of the controller, over a feature vector."""

from __future__ import annotations

import dataclasses
import math

import flax.linen as nn
import jax


@dataclasses.dataclass(frozen=True)
class ActorCriticConfig:
  """Sizes and initialisation of the controller network.

  Attributes:
    trunk: widths of the tanh layers that both heads share.
    head: widths of the tanh layers inside each head.
    orthogonal: if True, orthogonal initialisation as in the PPO authors' code,
      with gain sqrt(2) for hidden layers, 0.01 for logits (so that the first
      policy is nearly uniform) and 1 for the value; if False, Flax's default
      (LeCun normal).
  """

  observation_size: int
  num_actions: int
  trunk: tuple[int, ...] = (128, 128)
  head: tuple[int, ...] = (64,)
  orthogonal: bool = True

  def __post_init__(self):
    sizes = (self.observation_size, self.num_actions, *self.trunk, *self.head)
    if min(sizes) < 1:
      raise ValueError(f'every size must be at least 1, got {self}')


# The network of PROMIS for ten features and three actions (keep, rewrite,
# mutate); it has 34,692 parameters.
PROMIS = ActorCriticConfig(observation_size=10, num_actions=3)


class ActorCritic(nn.Module):
  """Maps observations to action logits and a state value."""

  config: ActorCriticConfig

  @nn.compact
  def __call__(self, observations: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Computes logits [..., A] before any action mask, and values [...]."""
    config = self.config
    if observations.shape[-1] != config.observation_size:
      raise ValueError(
        f'observations have {observations.shape[-1]} features, the network was '
        f'configured for {config.observation_size}: set '
        'ActorCriticConfig.observation_size to that of the environment'
      )
    x = observations
    for i, width in enumerate(config.trunk):
      x = nn.tanh(self._dense(width, math.sqrt(2), f'trunk_{i}')(x))
    actor = critic = x
    for i, width in enumerate(config.head):
      actor = nn.tanh(self._dense(width, math.sqrt(2), f'actor_{i}')(actor))
      critic = nn.tanh(self._dense(width, math.sqrt(2), f'critic_{i}')(critic))
    logits = self._dense(config.num_actions, 0.01, 'logits')(actor)
    values = self._dense(1, 1.0, 'value')(critic)
    return logits, values[..., 0]

  def _dense(self, width: int, gain: float, name: str) -> nn.Dense:
    if not self.config.orthogonal:
      return nn.Dense(width, name=name)
    init = nn.initializers.orthogonal(gain)
    return nn.Dense(width, kernel_init=init, name=name)
