"""The rewriter's update: packed rows in, a changed train state out.

  rows [R, ...] -> epochs x minibatches x micro-batches (`training.gradients`)
    -> clip, optimizer step

One jitted program with a donated state. Losses travel as sums beside their
denominators, so that neither packing nor the cutting into micro-batches can
change a gradient.
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
from promptrl_jax.training import gradients
from promptrl_jax.training.gradients import Metrics
from promptrl_jax.training.rewriter import policy as policy_lib
from promptrl_jax.training.rewriter.config import LossConfig
from promptrl_jax.training.rewriter.packing import Packed
from promptrl_jax.training.rewriter.policy import (
  Params,
  PolicyConfig,
  TokenOutputs,
)
from promptrl_jax.training.state import TrainState, step_key

# Metrics that are sums over weighted tokens, as the loss is.
_PER_LOSS = ('loss', 'policy_loss', 'value_loss')
ScoreFn = Callable[..., TokenOutputs]
UpdateFn = Callable[..., tuple[TrainState, Metrics]]
# Maps hidden states of the reference to its distributions, see `_projection`.
ProjectionFn = Callable[[Any], Projected | None]


@struct.dataclass
class UpdateBatch:
  """Packed rows with the advantages and log-probs of their completions.

  Attributes:
    rows: R rows.
    advantages: float32 [R, Q, C].
    sampler_logps: [R, Q, C], log-probs as the sampler reported them.
    old_logps: [R, Q, C], log-probs under the parameters before the update; None
      if the update is one step, which computes them itself.
    ref_logps: [R, Q, C], log-probs under the reference; None without one.
    ref_hidden: [R, S * C, D], hidden states of the reference, see
      `policy.TokenOutputs`; None unless the KL over the whole vocabulary is a
      term of the loss.
    returns: [R, Q, C], targets of the value head; None without one.
    old_values: [R, Q, C], values before the update; None without a value head.
  """

  rows: Packed
  advantages: jax.Array
  sampler_logps: jax.Array
  old_logps: jax.Array | None = None
  ref_logps: jax.Array | None = None
  ref_hidden: jax.Array | None = None
  returns: jax.Array | None = None
  old_values: jax.Array | None = None


def make_score_fn(
  policy: PolicyConfig,
  config: LossConfig,
  reference_policy: PolicyConfig | None = None,
  keep_hidden: bool = False,
) -> ScoreFn:
  """Returns the jitted score `(params, rows) -> TokenOutputs`.

  For the KL over the whole vocabulary it takes two more arguments, the hidden
  states and the parameters of the reference. It runs over as many rows at a
  time as the update, without gradients.

  Args:
    policy: the language model.
    config: number of micro-batches and dtype.
    reference_policy: the model that those hidden states are from.
    keep_hidden: also return hidden states, needed of a reference.
  """

  def score(params, rows, ref_hidden=None, ref_params=None):
    params = policy_lib.cast(params, config.compute_dtype)
    project = _projection(reference_policy, ref_params, config)

    def score_piece(piece):
      rows, states = _split_rows(policy.mesh, piece)
      return policy_lib.outputs(
        policy, params, rows, project(states), keep_hidden
      )

    def zeros(piece):
      shapes = jax.eval_shape(score_piece, piece)
      return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)

    def score_unless_empty(piece):
      return jax.lax.cond(jnp.any(piece[0].mask), score_piece, zeros, piece)

    if config.pieces == 1:
      return score_piece((rows, ref_hidden))
    pieces = jax.tree.map(
      lambda x: x.reshape(config.pieces, -1, *x.shape[1:]), (rows, ref_hidden)
    )
    outputs = jax.lax.map(score_unless_empty, pieces)
    outputs = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), outputs)
    return _split_rows(policy.mesh, outputs)

  return jax.jit(score)


def _projection(
  reference_policy: PolicyConfig | None,
  params: Params | None,
  config: LossConfig,
) -> ProjectionFn:
  """Returns a function from the reference's hidden states to distributions.

  Without parameters of a reference it returns None for any states.
  """
  if reference_policy is None or params is None:
    return lambda states: None
  head, axis = policy_lib.head(
    reference_policy, policy_lib.cast(params, config.compute_dtype)
  )
  return lambda states: Projected(states, head, axis)


def make_loss_fn(
  policy: PolicyConfig,
  config: LossConfig,
  project: ProjectionFn = lambda _: None,
):
  """Returns the loss of a policy as a sum, `(sum, (count, metrics))`.

  It is called with `(trained, fixed, kl_coef, batch)`. Metrics named in
  `_PER_LOSS` are sums like the loss, the others sums over tokens, whose number
  is among them. `mismatch_...` describes a micro-batch and is averaged.

  Args:
    project: see `_projection`; the KL over the whole vocabulary needs it.
  """
  policy_loss_fn = policy_losses.make_policy_loss_fn(
    config.kind, **config.options
  )

  def loss_fn(trained, fixed, kl_coef, batch):
    outputs = policy_lib.outputs(
      policy, {**fixed, **trained}, batch.rows, project(batch.ref_hidden)
    )
    # Rows no longer matter: one completion after the other, [R * Q, C].
    flat = lambda x: x.reshape(-1, x.shape[-1])
    outputs, data = jax.tree.map(
      flat, (outputs, batch.replace(rows=None, ref_hidden=None))
    )
    mask = flat(batch.rows.mask)
    logps = keep(outputs.logps, mask)
    old_logps = data.old_logps
    if config.is_one_step:
      old_logps = jax.lax.stop_gradient(logps)
    weights, count = aggregation.aggregation_weights(
      mask, config.aggregation, config.constant_length
    )
    tokens = jnp.sum(mask).astype(jnp.float32)
    trust, mismatch = _importance(config, old_logps, data.sampler_logps, mask)
    loss, metrics = policy_loss_fn(
      logps,
      old_logps,
      data.advantages,
      mask,
      weights * trust,
      data.ref_logps,
    )
    metrics |= {f'mismatch_{k}': v * tokens for k, v in mismatch.items()}
    metrics |= {'policy_loss': loss, 'tokens': tokens}
    metrics['entropy'] = masked_sum(outputs.entropies, mask)
    if config.entropy_coef:
      loss -= config.entropy_coef * masked_sum(outputs.entropies, weights)
    if data.ref_logps is not None:
      divergence, measured = _divergence(
        config, logps, old_logps, data.ref_logps, mask, outputs.divergences
      )
      loss += kl_coef * masked_sum(divergence, weights)
      metrics['kl'] = masked_sum(measured, mask)
    if outputs.values is not None:
      metrics['value_loss'] = losses.value_loss(
        outputs.values,
        data.old_values,
        data.returns,
        weights,
        config.value_clip,
      )
      loss += config.value_coef * metrics['value_loss']
    metrics['loss'] = loss
    return loss, (count, metrics)

  return loss_fn


def _importance(
  config: LossConfig,
  old_logps: jax.Array,
  sampler_logps: jax.Array,
  mask: jax.Array,
) -> tuple[jax.Array, Metrics]:
  """Returns importance weights [N, C] and metrics of the mismatch."""
  level = 'token' if config.importance == 'none' else config.importance
  trust, mismatch = importance.truncated_importance_weights(
    old_logps,
    sampler_logps,
    mask,
    level=level,
    cap=config.importance_cap,
  )
  if config.importance == 'none':
    trust = jnp.ones_like(trust)
  return trust, mismatch


def _divergence(
  config: LossConfig,
  logps: jax.Array,
  old_logps: jax.Array,
  ref_logps: jax.Array,
  mask: jax.Array,
  exact: jax.Array | None,
) -> tuple[jax.Array, jax.Array]:
  """Returns the KL [N, C] as a term of the loss, and as a measurement."""
  penalty = kl.token_kl(
    logps,
    ref_logps,
    mask,
    kind=config.kl_estimator,
    cap=config.kl_cap,
    min_prob=config.kl_min_prob,
    exact=exact,
  )
  if exact is not None:
    return penalty, exact
  # Tokens were drawn by the policy before the update: one that has become rare
  # since would count exp(d) for ever.
  ratio = losses.bounded_exp(keep(logps - old_logps, mask))
  return penalty, ratio * kl.token_kl(logps, ref_logps, mask, kind='k3')


def make_update_fn(
  policy: PolicyConfig,
  optimizer: optax.GradientTransformation,
  config: LossConfig,
  shardings: Any = None,
  reference_policy: PolicyConfig | None = None,
) -> UpdateFn:
  """Returns the jitted `(state, fixed, batch, kl_coef) -> (state, metrics)`.

  If the batch has hidden states of a reference, its parameters come last.

  The state is donated: use only the one that comes back. Metrics are means over
  tokens and over optimizer steps.

  Args:
    config: settings; compiled for each, and for each shape of a batch.
    shardings: `state.state_shardings` of the new state. None leaves them to the
      compiler; they may then differ from those of the first state, so that the
      second update is compiled once more.
    reference_policy: the model that hidden states of a reference are from.
  """

  def update(state, fixed, batch, kl_coef, ref_params=None):
    fixed = policy_lib.cast(fixed, config.compute_dtype)
    project = _projection(reference_policy, ref_params, config)
    loss_fn = make_loss_fn(policy, config, project)
    indices = gradients.deal(
      step_key(state, 'update'),
      jnp.any(batch.rows.mask, axis=(1, 2)),
      epochs=config.epochs,
      minibatches=config.minibatches,
      shuffle=config.minibatches > 1,
    )
    # The large array of a batch is taken one micro-batch at a time.
    hidden, batch = batch.ref_hidden, batch.replace(ref_hidden=None)

    def piece_loss_fn(trained, piece):
      rows, index = piece
      if hidden is not None:
        rows = rows.replace(ref_hidden=hidden[index])
      return loss_fn(trained, fixed, kl_coef, _split_rows(policy.mesh, rows))

    def gradient_fn(params, index):
      return gradients.accumulate_gradients(
        piece_loss_fn,
        policy_lib.cast(params, config.compute_dtype),
        (jax.tree.map(lambda x: x[index], batch), index),
        config.micro_batches,
        lambda piece: ~jnp.any(piece[0].rows.mask),
      )

    state, totals = gradients.take_steps(state, optimizer, gradient_fn, indices)
    return state, _metrics(totals, config.epochs)

  out = None if shardings is None else (shardings, None)
  return jax.jit(update, donate_argnums=0, out_shardings=out)


def _metrics(totals: gradients.StepTotals, epochs: int) -> Metrics:
  """Returns means: of losses over their denominator, of others over tokens."""
  tokens = totals.sums['tokens']
  counts = {True: totals.count, False: tokens}
  metrics = {
    f'train/{name}': value / jnp.maximum(counts[name in _PER_LOSS], 1)
    for name, value in totals.sums.items()
    if name != 'tokens'
  }
  metrics['train/grad_norm'] = totals.grad_norm
  metrics['train/tokens'] = tokens / epochs
  return metrics


def _split_rows(mesh: Mesh | None, rows: Any) -> Any:
  """Splits rows over the devices of a mesh."""
  if mesh is None:
    return rows
  return jax.lax.with_sharding_constraint(rows, mesh_lib.rows(mesh))
