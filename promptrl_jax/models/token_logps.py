"""Log-probs of given tokens without the logits of a whole batch in memory.

A text of T tokens over a vocabulary of V has T x V logits; with their softmax
and its gradient they are most of the memory of an update. Here only one chunk
of tokens has logits at a time, and the gradient computes them again.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp

from promptrl_jax.models.kernels import product, transposed_products


def token_logps(
  hidden: jax.Array,
  head: jax.Array,
  targets: jax.Array,
  temperature: jax.Array | float = 1.0,
  *,
  contracted: int = 0,
  chunk: int | None = None,
) -> tuple[jax.Array, jax.Array]:
  """Log-probs of `targets` and entropies of the distributions they are from.

  Args:
    hidden: [R, K, D], after the last norm.
    head: projection on the vocabulary, [D, V], or [V, D] if tied.
    targets: int [R, K].
    temperature: the logits are divided by it; a scalar.
    contracted: the axis of `head` that is D.
    chunk: places of a row, of the K, that have logits at a time; None: all.

  Returns:
    float32 [R, K] each, in nats.
  """
  r, k = targets.shape
  chunk = k if chunk is None else min(chunk, k)
  padding = -k % chunk
  temperature = jnp.asarray(temperature, jnp.float32)

  def cut(
    x,
  ):  # [R, K, ...] -> [chunks, R, chunk, ...]; rows stay where they are
    x = jnp.pad(x, [(0, 0), (0, padding)] + [(0, 0)] * (x.ndim - 2))
    return jnp.swapaxes(x.reshape(r, -1, chunk, *x.shape[2:]), 0, 1)

  logps, entropies = _chunked(  # pyright: ignore[reportGeneralTypeIssues]
    contracted, cut(hidden), head, cut(targets), temperature
  )
  join = lambda x: jnp.swapaxes(x, 0, 1).reshape(r, -1)[:, :k]
  return join(logps), join(entropies)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _chunked(
  contracted: int, hidden, head, targets, temperature
) -> tuple[jax.Array, jax.Array]:
  """`token_logps` of [chunks, R, chunk, ...]."""
  return _forward(contracted, hidden, head, targets, temperature)[0]


def _forward(contracted, hidden, head, targets, temperature):
  def one(inputs):
    x, target = inputs
    logits = _logits(contracted, x, head, temperature)
    total = jax.nn.logsumexp(logits, axis=-1)
    chosen = jnp.sum(jnp.where(_is(target, logits), logits, 0.0), axis=-1)
    mean = jnp.sum(jnp.exp(logits - total[..., None]) * logits, axis=-1)
    return chosen - total, total - mean, total

  logps, entropies, totals = _over_chunks(one, (hidden, targets))
  saved = hidden, head, targets, temperature, totals, entropies
  return (logps, entropies), saved


def _backward(contracted, saved, cotangents):
  hidden, head, targets, temperature, totals, entropies = saved

  def one(d_head, inputs):
    x, target, total, entropy, d_logp, d_entropy = inputs
    logps = _logits(contracted, x, head, temperature) - total[..., None]
    probs = jnp.exp(logps)
    # d logp = onehot - p; d entropy = -p (log p + entropy).
    d_logits = d_logp[..., None] * (_is(target, logps) - probs)
    d_logits -= d_entropy[..., None] * probs * (logps + entropy[..., None])
    d_logits /= temperature
    rows = lambda y: y.reshape(-1, y.shape[-1])
    d_x, d_kernel = transposed_products(
      rows(d_logits), rows(x), head, contracted
    )
    return d_head + d_kernel, d_x.reshape(x.shape).astype(x.dtype)

  inputs = (hidden, targets, totals, entropies, *cotangents)
  start = jnp.zeros(head.shape, jnp.float32)
  if len(hidden) == 1:
    d_head, d_hidden = one(start, jax.tree.map(lambda x: x[0], inputs))
    d_hidden = d_hidden[None]
  else:
    d_head, d_hidden = jax.lax.scan(one, start, inputs)
  return d_hidden, d_head.astype(head.dtype), None, None


_chunked.defvjp(_forward, _backward)


def _over_chunks(function: Any, inputs: Any) -> Any:
  """`lax.map`, without a loop around a single chunk."""
  if len(inputs[0]) == 1:
    only = function(jax.tree.map(lambda x: x[0], inputs))
    return jax.tree.map(lambda x: x[None], only)
  return jax.lax.map(function, inputs)


def _logits(contracted: int, x, head, temperature) -> jax.Array:
  """float32 [R, chunk, V]."""
  rows = x.reshape(-1, x.shape[-1])
  return (
    product(rows, head, contracted).reshape(*x.shape[:-1], -1) / temperature
  )


def _is(target: jax.Array, logits: jax.Array) -> jax.Array:
  """Where the logit of the target is; can be split over V, unlike an index."""
  return jnp.arange(logits.shape[-1]) == target[..., None]
