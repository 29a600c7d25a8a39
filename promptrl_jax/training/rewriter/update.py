"""The update of a language model: packed rows in, a changed state out.

  rows [R, ...] -> epochs x minibatches -> accumulate_gradients over
    micro-batches -> clip, step

One jitted program with a donated state. Losses travel as sums beside their
denominators, so that neither packing nor the cutting into pieces can change a
gradient (see `update.accumulate_gradients`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import struct
from jax.sharding import Mesh

from promptrl_jax.models.token_logps import Projected
from promptrl_jax.parallel import mesh as mesh_lib
from promptrl_jax.rl import (
  aggregation,
  importance,
  kl,
  losses,
  policy_losses,
)
from promptrl_jax.rl.masked import keep, masked_sum
from promptrl_jax.training.controller.update import (
  Metrics,
  accumulate_gradients,
)
from promptrl_jax.training.rewriter import policy as lm_policy
from promptrl_jax.training.rewriter.packing import Packed
from promptrl_jax.training.rewriter.policy import Params, PolicyConfig
from promptrl_jax.training.rewriter.update_config import LMUpdateConfig
from promptrl_jax.training.state import TrainState, step_key

# Metrics that are sums over weighted tokens, as the loss is.
_PER_LOSS = ('loss', 'policy_loss', 'value_loss')


@struct.dataclass
class LMBatch:
  """Packed rows and what their completions are worth.

  Attributes:
    rows: R of them.
    advantages: float32 [R, Q, C].
    sampler_logps: [R, Q, C], as the sampler reported them.
    old_logps: [R, Q, C], under the parameters before the update; None if that
      is one step, which computes them anyhow.
    ref_logps: [R, Q, C], under the reference; None if there is none.
    ref_hidden: [R, S * C, D] of the reference, see `lm_policy.TokenOutputs`;
      None unless the divergence over the vocabulary is a term of the loss.
    returns, old_values: [R, Q, C]; None if there is no value head.
  """

  rows: Packed
  advantages: Any
  sampler_logps: Any
  old_logps: Any = None
  ref_logps: Any = None
  ref_hidden: Any = None
  returns: Any = None
  old_values: Any = None


def make_score_fn(
  policy: PolicyConfig,
  config: LMUpdateConfig,
  compared: PolicyConfig | None = None,
  keep_hidden: bool = False,
) -> Callable[..., lm_policy.TokenOutputs]:
  """Returns the jitted score.

  It is called with `(params, rows)`, for the divergence from a reference over
  the vocabulary also with its `(hidden, params)`, and gives a `TokenOutputs`.
  It runs over as many rows at a time as the update, without gradients.

  Args:
    policy: the language model.
    config: settings.
    compared: the reference.
    keep_hidden: of the language model, which may be a reference itself.
  """

  def score(params, rows, ref_hidden=None, ref_params=None):
    params = lm_policy.cast(params, config.compute_dtype)
    reference = _projection(compared, ref_params, config)

    def full(piece):
      rows, states = _on(policy.mesh, piece)
      return lm_policy.outputs(
        policy, params, rows, reference(states), keep_hidden
      )

    def empty(piece):
      shapes = jax.eval_shape(full, piece)
      return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)

    if config.pieces == 1:
      return full((rows, ref_hidden))
    one = lambda piece: jax.lax.cond(jnp.any(piece[0].mask), full, empty, piece)
    cut = lambda x: x.reshape(config.pieces, -1, *x.shape[1:])
    found = jax.lax.map(one, jax.tree.map(cut, (rows, ref_hidden)))
    found = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), found)
    return _on(policy.mesh, found)

  return jax.jit(score)


def _projection(
  compared: PolicyConfig | None, params: Params | None, config: LMUpdateConfig
) -> Callable[[Any], Projected | None]:
  """What makes distributions of the hidden states of a reference.

  Without its parameters, which go with the states, there are none.
  """
  if compared is None or params is None:
    return lambda states: None
  head, axis = lm_policy.head(
    compared, lm_policy.cast(params, config.compute_dtype)
  )
  return lambda states: Projected(states, head, axis)


def make_loss_fn(
  policy: PolicyConfig,
  config: LMUpdateConfig,
  reference: Callable[[Any], Projected | None] = lambda _: None,
):
  """Returns the loss as a sum, `(sum, (count, metrics))`.

  It is called with `(trained, fixed, kl_coef, batch)`.

  Metrics of the names in `_PER_LOSS` are sums like the loss, the others over
  tokens, whose number is among them. `mismatch_...` describes a micro-batch and
  is averaged over them.
  """
  policy_loss_fn = policy_losses.make_policy_loss_fn(
    config.loss, **config.loss_options
  )

  def loss_fn(trained, fixed, kl_coef, batch):
    found = lm_policy.outputs(
      policy, {**fixed, **trained}, batch.rows, reference(batch.ref_hidden)
    )
    # Rows no longer matter: one completion after the other, [R * Q, C].
    flat = lambda x: x.reshape(-1, x.shape[-1])
    found, data = jax.tree.map(
      flat, (found, batch.replace(rows=None, ref_hidden=None))
    )
    mask = flat(batch.rows.mask)
    logps = keep(found.logps, mask)
    old_logps = data.old_logps
    if config.is_one_step:
      old_logps = jax.lax.stop_gradient(logps)
    weights, count = aggregation.aggregation_weights(
      mask, config.aggregation, config.constant_length
    )
    tokens = jnp.sum(mask).astype(jnp.float32)
    level = 'token' if config.importance == 'none' else config.importance
    trust, mismatch = importance.truncated_importance_weights(
      old_logps, data.sampler_logps, mask, level=level,
      cap=config.importance_cap,
    )  # fmt: skip
    if config.importance == 'none':
      trust = jnp.ones_like(trust)
    loss, metrics = policy_loss_fn(
      logps, old_logps, data.advantages, mask, weights * trust, data.ref_logps
    )
    metrics |= {f'mismatch_{k}': v * tokens for k, v in mismatch.items()}
    metrics |= {'policy_loss': loss, 'tokens': tokens}
    metrics['entropy'] = masked_sum(found.entropies, mask)
    if config.entropy_coef:
      loss -= config.entropy_coef * masked_sum(found.entropies, weights)
    if data.ref_logps is not None:
      divergence = kl.token_kl(
        logps, data.ref_logps, mask, kind=config.kl_estimator,
        cap=config.kl_cap, min_prob=config.kl_min_prob,
        exact=found.divergences,
      )  # fmt: skip
      loss += kl_coef * masked_sum(divergence, weights)
      measured = found.divergences
      if measured is None:
        # Tokens are of the policy before the update: one that has become rare
        # since would count exp(d) for ever.
        ratio = losses.bounded_exp(keep(logps - old_logps, mask))
        measured = ratio * kl.token_kl(logps, data.ref_logps, mask, kind='k3')
      metrics['kl'] = masked_sum(measured, mask)
    if found.values is not None:
      metrics['value_loss'] = losses.value_loss(
        found.values, data.old_values, data.returns, weights, config.value_clip
      )
      loss += config.value_coef * metrics['value_loss']
    metrics['loss'] = loss
    return loss, (count, metrics)

  return loss_fn


def make_update_fn(
  policy: PolicyConfig,
  optimizer: optax.GradientTransformation,
  config: LMUpdateConfig,
  placed: Any = None,
  compared: PolicyConfig | None = None,
) -> Callable[..., tuple[TrainState, Metrics]]:
  """Returns the jitted `(state, fixed, batch, kl_coef) -> (state, metrics)`.

  If the batch has hidden states of a reference, its parameters come last.

  The state is donated: use only the one that comes back. Metrics are means over
  tokens and over optimizer steps.

  Args:
    policy: the language model.
    optimizer: changes `state.params`, the trained part of the parameters.
    config: settings; one compilation each, and for each shape of a batch.
    placed: `state.placement`, where the new state goes; None: wherever the
      compiler leaves it, which may differ from where the first one was, so that
      the second update is compiled once more.
    compared: the reference.
  """

  def update(state, fixed, batch, kl_coef, ref_params=None):
    fixed = lm_policy.cast(fixed, config.compute_dtype)
    loss_fn = make_loss_fn(
      policy, config, _projection(compared, ref_params, config)
    )
    order = _deal(step_key(state, 'update'), batch.rows, config)
    # The large array of a batch is taken a piece at a time.
    hidden, batch = batch.ref_hidden, batch.replace(ref_hidden=None)

    def piece_loss(trained, piece):
      rows, index = piece
      if hidden is not None:
        rows = rows.replace(ref_hidden=hidden[index])
      return loss_fn(trained, fixed, kl_coef, _on(policy.mesh, rows))

    def optimizer_step(carry, index):
      params, opt_state = carry
      gradients, count, metrics = accumulate_gradients(
        piece_loss,
        lm_policy.cast(params, config.compute_dtype),
        (jax.tree.map(lambda x: x[index], batch), index),
        config.micro_batches,
        lambda piece: ~jnp.any(piece[0].rows.mask),
      )
      updates, opt_state = optimizer.update(gradients, opt_state, params)
      changed = (optax.apply_updates(params, updates), opt_state)
      # Without a valid token, Adam's momentum would still move the parameters.
      carry = jax.tree.map(
        lambda new, old: jnp.where(count > 0, new, old), changed, carry
      )
      return carry, (count, metrics, optax.tree.norm(gradients))

    (params, opt_state), (counts, sums, norms) = jax.lax.scan(
      optimizer_step, (state.params, state.opt_state), order
    )
    sums = jax.tree.map(jnp.sum, sums)
    totals = {True: jnp.sum(counts), False: sums['tokens']}
    metrics = {
      f'train/{name}': value / jnp.maximum(totals[name in _PER_LOSS], 1)
      for name, value in sums.items()
      if name != 'tokens'
    }
    metrics['train/grad_norm'] = jnp.mean(norms)
    metrics['train/tokens'] = sums['tokens'] / config.epochs
    state = state.replace(
      params=params, opt_state=opt_state, step=state.step + 1
    )
    return state, metrics

  out = None if placed is None else (placed, None)
  return jax.jit(update, donate_argnums=0, out_shardings=out)


def _deal(key: jax.Array, rows: Packed, config: LMUpdateConfig) -> jax.Array:
  """Deals the rows of each epoch to minibatches, empty ones last.

  Returns:
    int32 [epochs * minibatches, R / minibatches].
  """
  count = len(rows.tokens)
  is_empty = ~jnp.any(rows.mask, axis=(1, 2))

  def one_epoch(key):
    order = jnp.arange(count)
    if config.minibatches > 1:
      order = jax.random.permutation(key, count)
    order = order[jnp.argsort(is_empty[order], stable=True)]
    return order.reshape(-1, config.minibatches).T

  keys = jax.random.split(key, config.epochs)
  order = jax.vmap(one_epoch)(keys)
  return order.reshape(config.epochs * config.minibatches, -1)


def _on(mesh: Mesh | None, rows: Any) -> Any:
  """Splits rows over the devices of a mesh."""
  if mesh is None:
    return rows
  return jax.lax.with_sharding_constraint(rows, mesh_lib.rows(mesh))
