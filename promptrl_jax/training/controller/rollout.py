"""From a rollout in time order to a batch that an update can shuffle."""

from __future__ import annotations

import flax.struct
import jax
import jax.numpy as jnp

from promptrl_jax.rl.advantages import gae
from promptrl_jax.rl.masked import normalize
from promptrl_jax.training.controller.config import PPOConfig


@flax.struct.dataclass
class Rollout:
  """T steps of N environments. Where `mask` is False nothing else matters.

  Attributes:
    observations: `[T, N, O]` float32.
    action_masks: `[T, N, A]` bool, actions that were allowed.
    actions: `[T, N]` int32.
    old_logps: `[T, N]` float32, log-probability at the time of acting.
    values: `[T, N]` float32, value of the observation at that time.
    next_values: `[T, N]` float32, value of the state that followed, before any
      reset; ignored where terminated.
    rewards: `[T, N]` float32.
    terminated: `[T, N]` bool, ended by the rules of the environment.
    truncated: `[T, N]` bool, cut off; the next value is bootstrapped.
    mask: `[T, N]` bool, steps that took place.
  """

  observations: jax.Array
  action_masks: jax.Array
  actions: jax.Array
  old_logps: jax.Array
  values: jax.Array
  next_values: jax.Array
  rewards: jax.Array
  terminated: jax.Array
  truncated: jax.Array
  mask: jax.Array


@flax.struct.dataclass
class PPOBatch:
  """M steps in no order; fields as in `Rollout`, with what they are worth.

  Attributes:
    observations: `[M, O]`; action_masks: `[M, A]`; all others `[M]`.
    advantages: normalised as the config says.
    returns: advantages before normalisation plus old values.
  """

  observations: jax.Array
  action_masks: jax.Array
  actions: jax.Array
  old_logps: jax.Array
  old_values: jax.Array
  advantages: jax.Array
  returns: jax.Array
  mask: jax.Array


def make_batch(rollout: Rollout, config: PPOConfig) -> PPOBatch:
  """Computes advantages over the rollout and flattens it.

  The batch is padded with invalid steps to a multiple of `minibatches *
  micro_batches`, and every invalid step is emptied, so that a NaN in padding
  cannot reach a gradient through 0 * NaN.
  """
  advantages = gae(
    rollout.rewards,
    rollout.values,
    rollout.next_values,
    rollout.terminated,
    rollout.truncated,
    gamma=config.gamma,
    lam=config.gae_lambda,
    mask=rollout.mask,
  )
  returns = advantages + rollout.values
  if config.normalize == 'rollout':
    advantages = normalize(advantages, rollout.mask, ddof=config.normalize_ddof)
  batch = PPOBatch(
    observations=rollout.observations,
    action_masks=rollout.action_masks,
    actions=rollout.actions,
    old_logps=rollout.old_logps,
    old_values=rollout.values,
    advantages=advantages,
    returns=returns,
    mask=rollout.mask,
  )
  size = rollout.mask.size
  padding = -size % (config.minibatches * config.micro_batches)

  def flatten(x):
    valid = rollout.mask.reshape(rollout.mask.shape + (1,) * (x.ndim - 2))
    x = jnp.where(valid, x, jnp.zeros_like(x)).reshape(size, *x.shape[2:])
    return jnp.pad(x, [(0, padding)] + [(0, 0)] * (x.ndim - 1))

  return jax.tree.map(flatten, batch)
