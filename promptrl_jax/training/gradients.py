"""Optimizer steps over epochs, minibatches and micro-batches of any loss sum.

  batch [M, ...] -> deal: row indices of epochs x minibatches
    -> accumulate_gradients over micro-batches -> apply_gradients

Losses travel as sums beside their denominators, so that neither padding nor the
cutting into micro-batches can change a gradient.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import optax

from promptrl_jax.training.state import Params, TrainState

Metrics = dict[str, jax.Array]
# (params, batch) -> loss sum [], (denominator [], metric sums)
LossSumFn = Callable[[Params, Any], tuple[jax.Array, tuple[jax.Array, Metrics]]]
# (params, row indices [M]) -> gradients, denominator [], metric sums
GradientFn = Callable[[Params, jax.Array], tuple[Params, jax.Array, Metrics]]


@flax.struct.dataclass
class StepTotals:
  """Sums over all optimizer steps of one update.

  Attributes:
    count: `[]`, denominator of the loss, e.g. the number of valid elements.
    sums: `[]` each, metric sums by name.
    grad_norm: `[]`, mean over optimizer steps of the global gradient norm.
  """

  count: jax.Array
  sums: Metrics
  grad_norm: jax.Array


def accumulate_gradients(
  loss_fn: LossSumFn,
  params: Params,
  batch: Any,
  micro_batches: int,
  is_empty_fn: Callable[[Any], jax.Array] | None = None,
) -> tuple[Params, jax.Array, Metrics]:
  """Differentiates a masked mean over a batch, one micro-batch at a time.

  Args:
    loss_fn: returns a loss sum, its denominator and metric sums.
    params: differentiated; gradients of 16 bits are added up in float32.
    batch: tree of `[M, ...]` arrays.
    micro_batches: must divide M.
    is_empty_fn: maps a micro-batch to `[]` bool; nothing is computed for one
      that is empty. None computes all of them.

  Returns:
    Gradients of (loss sum / denominator) over the whole batch, the denominator
    and the metric sums. A batch without valid elements has zero gradients.

  Raises:
    ValueError: `micro_batches` does not divide M.
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
    if is_empty_fn is None:
      return add(totals, piece), None
    keep = lambda totals, piece: totals
    return jax.lax.cond(is_empty_fn(piece), keep, add, totals, piece), None

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


def apply_gradients(
  optimizer: optax.GradientTransformation,
  params: Params,
  opt_state: optax.OptState,
  gradients: Params,
  count: jax.Array,
) -> tuple[Params, optax.OptState]:
  """Takes one optimizer step, unless the batch had no valid element.

  Without one, Adam's momentum would still move the parameters. `count` is the
  denominator `[]` of the loss; 0 skips the step.
  """
  updates, new_state = optimizer.update(gradients, opt_state, params)
  stepped = (optax.apply_updates(params, updates), new_state)
  return jax.tree.map(
    lambda new, old: jnp.where(count > 0, new, old),
    stepped,
    (params, opt_state),
  )


def deal(
  key: jax.Array,
  valid: jax.Array,
  *,
  epochs: int,
  minibatches: int,
  shuffle: bool = True,
) -> jax.Array:
  """Deals rows to minibatches: valid rows evenly, invalid rows last.

  Args:
    valid: `[M]` bool, rows that hold something.
    epochs: passes over the rows.
    minibatches: minibatches of one pass; must divide M.
    shuffle: whether each epoch has an order of its own.

  Returns:
    `[epochs * minibatches, M / minibatches]` int32, indices of rows.
  """

  def one_epoch(key):
    order = jnp.arange(valid.size)
    if shuffle:
      order = jax.random.permutation(key, valid.size)
    order = order[jnp.argsort(~valid[order], stable=True)]
    return order.reshape(-1, minibatches).T

  indices = jax.vmap(one_epoch)(jax.random.split(key, epochs))
  return indices.reshape(epochs * minibatches, -1)


def take_steps(
  state: TrainState,
  optimizer: optax.GradientTransformation,
  gradient_fn: GradientFn,
  indices: jax.Array,
) -> tuple[TrainState, StepTotals]:
  """Takes one optimizer step per row of `indices`, and counts one update.

  `gradient_fn` returns the gradients of the rows of a minibatch, most likely
  from `accumulate_gradients`. The sums are over all steps.
  """

  def optimizer_step(carry, index):
    params, opt_state = carry
    gradients, count, sums = gradient_fn(params, index)
    carry = apply_gradients(optimizer, params, opt_state, gradients, count)
    return carry, (count, sums, optax.tree.norm(gradients))

  (params, opt_state), (counts, sums, norms) = jax.lax.scan(
    optimizer_step, (state.params, state.opt_state), indices
  )
  state = dataclasses.replace(
    state, params=params, opt_state=opt_state, step=state.step + 1
  )
  totals = StepTotals(
    jnp.sum(counts), jax.tree.map(jnp.sum, sums), jnp.mean(norms)
  )
  return state, totals
