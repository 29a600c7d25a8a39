"""The PPO update: one rollout in, one changed state out, one jitted function.

  rollout [T, N] -> make_batch: advantages and their normalisation, once
    -> epochs x minibatches -> accumulate_gradients over micro-batches -> step

This is the only file in which a forward pass meets a loss. Losses travel as
sums beside their denominators, so that neither padding nor the cutting into
micro-batches can change a gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

from promptrl_jax.rl import losses, policy_losses
from promptrl_jax.rl.masked import masked_mean, masked_sum
from promptrl_jax.training.controller.config import PPOConfig
from promptrl_jax.training.controller.rollout import (
  PPOBatch,
  Rollout,
  make_batch,
)
from promptrl_jax.training.state import Params, TrainState, step_key

# (params, observations [..., O]) -> logits [..., A], values [...]; Any, as the
# type of Linen's `apply` does not say what a module returns
ApplyFn = Callable[[Params, jax.Array], Any]
# (params, batch) -> loss sum [], (denominator [], metric sums)
LossSumFn = Callable[
  [Params, Any], tuple[jax.Array, tuple[jax.Array, dict[str, jax.Array]]]
]
Metrics = dict[str, jax.Array]


def make_ppo_loss_fn(apply_fn: ApplyFn, config: PPOConfig) -> LossSumFn:
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


def accumulate_gradients(
  loss_fn: LossSumFn,
  params: Params,
  batch: Any,
  micro_batches: int,
  skip_fn: Callable[[Any], jax.Array] | None = None,
) -> tuple[Params, jax.Array, Metrics]:
  """Differentiates a masked mean over a batch, one piece at a time.

  Args:
    loss_fn: returns a loss sum, its denominator and metric sums.
    params: differentiated; gradients of 16 bits are added up in float32.
    batch: tree of `[M, ...]` arrays.
    micro_batches: number of pieces; must divide M.
    skip_fn: whether a piece holds nothing, so that nothing is computed for it.

  Returns:
    Gradients of (loss sum / denominator) over the whole batch, the denominator
    and the metric sums. A batch without valid elements has zero gradients.
  """
  size = jax.tree.leaves(batch)[0].shape[0]
  if size % micro_batches:
    raise ValueError(
      f'a batch of {size} cannot be cut into {micro_batches} equal '
      'micro-batches: pad it with invalid elements'
    )
  pieces = jax.tree.map(
    lambda x: x.reshape(micro_batches, -1, *x.shape[1:]), batch
  )
  gradient_fn = jax.grad(loss_fn, has_aux=True)

  def add(totals, piece):
    return jax.tree.map(jnp.add, totals, gradient_fn(params, piece))

  def add_unless_empty(totals, piece):
    if skip_fn is None:
      return add(totals, piece), None
    keep = lambda totals, piece: totals
    return jax.lax.cond(skip_fn(piece), keep, add, totals, piece), None

  shapes = jax.eval_shape(
    gradient_fn, params, jax.tree.map(lambda x: x[0], pieces)
  )
  zeros = jax.tree.map(
    lambda x: jnp.zeros(x.shape, jnp.promote_types(x.dtype, jnp.float32)),
    shapes,
  )
  (gradients, (count, metrics)), _ = jax.lax.scan(
    add_unless_empty, zeros, pieces
  )
  scale = 1.0 / jnp.where(count > 0, count, 1)
  return jax.tree.map(lambda x: x * scale, gradients), count, metrics


def _minibatch_indices(
  key: jax.Array, mask: jax.Array, config: PPOConfig
) -> jax.Array:
  """Deals the steps of each epoch to minibatches, valid ones evenly.

  Returns:
    `[epochs * minibatches, M / minibatches]` int32 indices.
  """

  def deal(key):
    order = jax.random.permutation(key, mask.size)
    order = order[jnp.argsort(~mask[order], stable=True)]
    return order.reshape(-1, config.minibatches).T

  indices = jax.vmap(deal)(jax.random.split(key, config.epochs))
  return indices.reshape(config.epochs * config.minibatches, -1)


def make_ppo_update_fn(
  apply_fn: ApplyFn,
  optimizer: optax.GradientTransformation,
  config: PPOConfig,
) -> Callable[[TrainState, Rollout], tuple[TrainState, Metrics]]:
  """Returns the jitted update `(state, rollout) -> (state, metrics)`.

  The state that is passed in is donated: use only the one that comes back.
  Metrics are means over valid steps and over all optimizer steps. A rollout
  without a valid step changes nothing but the step number.

  Args:
    apply_fn: the network.
    optimizer: `make_ppo_optimizer(config)`, or any other.
    config: settings; one compilation each.
  """
  loss_fn = make_ppo_loss_fn(apply_fn, config)

  def update(state, rollout):
    batch = make_batch(rollout, config)
    key = step_key(state, 'update')
    indices = _minibatch_indices(key, batch.mask, config)

    def optimizer_step(carry, index):
      minibatch = jax.tree.map(lambda x: x[index], batch)
      gradients, count, metrics = accumulate_gradients(
        loss_fn, carry[0], minibatch, config.micro_batches
      )
      updates, opt_state = optimizer.update(gradients, carry[1], carry[0])
      changed = (optax.apply_updates(carry[0], updates), opt_state)
      # Without a valid step, Adam's momentum would still move the parameters.
      carry = jax.tree.map(
        lambda new, old: jnp.where(count > 0, new, old), changed, carry
      )
      return carry, (count, metrics, optax.tree.norm(gradients))

    (params, opt_state), (counts, sums, norms) = jax.lax.scan(
      optimizer_step, (state.params, state.opt_state), indices
    )
    total = jnp.maximum(jnp.sum(counts), 1)
    metrics = {f'train/{k}': jnp.sum(v) / total for k, v in sums.items()}
    metrics['train/grad_norm'] = jnp.mean(norms)
    metrics['train/explained_variance'] = _explained_variance(batch)
    metrics['rollout/reward'] = masked_mean(rollout.rewards, rollout.mask)
    metrics['rollout/steps'] = jnp.sum(batch.mask)
    state = state.replace(
      params=params, opt_state=opt_state, step=state.step + 1
    )
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
  int32, their log-probabilities `[N]` and values `[N]`.

  Args:
    apply_fn: the network.
    greedy: take the most probable action instead of a sample; the
      log-probability is still that of the policy, not 0, and keys are ignored.
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
