"""The controller's PPO update and its policy, as jitted functions.

Trajectories [T, N] -> make_batch: advantages and their normalisation, once
  -> epochs x minibatches x micro-batches (`training.gradients`)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

from promptrl_jax.envs.editing.rollout import Trajectories
from promptrl_jax.rl import losses, policy_losses
from promptrl_jax.rl.masked import masked_mean, masked_sum
from promptrl_jax.training import gradients
from promptrl_jax.training.controller.config import PPOConfig
from promptrl_jax.training.controller.rollout import PPOBatch, make_batch
from promptrl_jax.training.gradients import LossSumFn, Metrics
from promptrl_jax.training.state import Params, TrainState, step_key

# (params, observations [..., O]) -> logits [..., A], values [...]; Any, as the
# type of Linen's `apply` does not say what a module returns
ApplyFn = Callable[[Params, jax.Array], Any]
UpdateFn = Callable[[TrainState, Trajectories], tuple[TrainState, Metrics]]


def make_loss_fn(apply_fn: ApplyFn, config: PPOConfig) -> LossSumFn:
  """Returns the PPO loss as a sum over the valid steps of a `PPOBatch`."""

  policy_loss_fn = policy_losses.make_policy_loss_fn(
    'ppo', clip_low=config.clip, clip_high=config.clip
  )

  def loss_fn(params, batch):
    logits, values = apply_fn(params, batch.observations)
    logps = losses.categorical_logps(logits, batch.actions, batch.action_masks)
    policy, metrics = policy_loss_fn(
      logps, batch.old_logps, batch.advantages, batch.mask
    )
    value = losses.value_loss(
      values, batch.old_values, batch.returns, batch.mask, config.value_clip
    )
    entropy = masked_sum(
      losses.categorical_entropy(logits, batch.action_masks), batch.mask
    )
    loss = policy + config.value_coef * value - config.entropy_coef * entropy
    metrics |= {
      'loss': loss,
      'policy_loss': policy,
      'value_loss': value,
      'entropy': entropy,
    }
    return loss, (masked_sum(batch.mask.astype(jnp.float32)), metrics)

  return loss_fn


def make_update_fn(
  apply_fn: ApplyFn,
  optimizer: optax.GradientTransformation,
  config: PPOConfig,
  continuations: int = 1,
) -> UpdateFn:
  """Returns the jitted update `(state, rollout) -> (state, metrics)`.

  The state that is passed in is donated: use only the one that comes back.
  Metrics are means over valid steps and over all optimizer steps. A rollout
  without a valid step changes nothing but the step number.
  """
  loss_fn = make_loss_fn(apply_fn, config)

  def update(state, rollout):
    batch = make_batch(rollout, config, continuations)
    indices = gradients.deal(
      step_key(state, 'update'),
      batch.mask,
      epochs=config.epochs,
      minibatches=config.minibatches,
    )

    def gradient_fn(params, index):
      minibatch = jax.tree.map(lambda x: x[index], batch)
      return gradients.accumulate_gradients(
        loss_fn, params, minibatch, config.micro_batches
      )

    state, totals = gradients.take_steps(state, optimizer, gradient_fn, indices)
    count = jnp.maximum(totals.count, 1)
    metrics = {f'train/{k}': v / count for k, v in totals.sums.items()}
    metrics['train/grad_norm'] = totals.grad_norm
    metrics['train/explained_variance'] = _explained_variance(batch)
    metrics['rollout/reward'] = masked_mean(rollout.rewards, rollout.mask)
    metrics['rollout/steps'] = jnp.sum(batch.mask)
    return state, metrics

  return jax.jit(update, donate_argnums=0)


def _explained_variance(batch: PPOBatch) -> jax.Array:
  """Returns the share of the returns' variance that old values explain."""

  def variance(x):
    return masked_mean(jnp.square(x - masked_mean(x, batch.mask)), batch.mask)

  total = variance(batch.returns)
  residual = variance(batch.returns - batch.old_values)
  return jnp.where(total > 0, 1 - residual / jnp.where(total > 0, total, 1), 0)


def make_act_fn(
  apply_fn: ApplyFn, *, greedy: bool = False
) -> Callable[..., tuple[jax.Array, jax.Array, jax.Array]]:
  """Returns the jitted policy.

  It is called with `(params, observations [N, O], action_masks [N, A] bool,
  keys [N])`, typed keys, one per row, each consumed. It returns actions `[N]`
  int32, their log-probabilities `[N]` and values `[N]`. A greedy policy takes
  the most probable action and ignores the keys; the log-probability is still
  that of the policy, not 0.
  """

  @jax.jit
  def act(params, observations, action_masks, keys):
    logits, values = apply_fn(params, observations)
    masked_logits = losses.mask_logits(logits, action_masks)
    if greedy:
      actions = jnp.argmax(masked_logits, axis=-1)
    else:
      actions = jax.vmap(jax.random.categorical)(keys, masked_logits)
    actions = actions.astype(jnp.int32)
    logps = losses.categorical_logps(logits, actions, action_masks)
    return actions, logps, values

  return act
