"""Log-probs of given tokens without the logits of a whole batch in memory.

A text of T tokens over a vocabulary of V has T x V logits; with their softmax
and its gradient they are most of the memory of an update. Here only one chunk
of tokens has logits at a time, and the gradient computes them again.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from promptrl_jax.models.kernels import product, transposed_products


class Projected(NamedTuple):
  """Distributions over the vocabulary that are not written out.

  Attributes:
    hidden: [R, K, D], after the last norm.
    head: projection on the vocabulary, [D, V], or [V, D] if tied.
    contracted: the axis of `head` that is D.
  """

  hidden: jax.Array
  head: jax.Array
  contracted: int = 0


class TokenLogps(NamedTuple):
  """What distributions say about tokens, float32 [R, K], in nats.

  Attributes:
    logps: of each token.
    entropies: of the distribution that it is from.
    divergences: KL(distribution || that of the reference); None without one.
  """

  logps: jax.Array
  entropies: jax.Array
  divergences: jax.Array | None


def token_logps(
  policy: Projected,
  targets: jax.Array,
  temperature: jax.Array | float = 1.0,
  *,
  chunk: int | None = None,
  reference: Projected | None = None,
) -> TokenLogps:
  """Log-probs of `targets`, and what there is to say about the whole.

  Gradients flow into `policy` alone.

  Args:
    policy: the distributions.
    targets: int [R, K].
    temperature: logits are divided by it, those of the reference as well; a
      scalar.
    chunk: places of a row, of the K, that have logits at a time; None: all.
    reference: of other distributions at the same places, to be compared with.
  """
  r, k = targets.shape
  chunk = k if chunk is None else min(chunk, k)
  padding = -k % chunk
  temperature = jnp.asarray(temperature, jnp.float32)

  def cut(x):
    # [R, K, ...] -> [chunks, R, chunk, ...]; rows stay where they are.
    x = jnp.pad(x, [(0, 0), (0, padding)] + [(0, 0)] * (x.ndim - 2))
    return jnp.swapaxes(x.reshape(r, -1, chunk, *x.shape[2:]), 0, 1)

  models = (policy,) if reference is None else (policy, reference)
  found = _chunked(  # pyright: ignore[reportGeneralTypeIssues]
    tuple(model.contracted for model in models),
    tuple(cut(model.hidden) for model in models),
    tuple(model.head for model in models),
    cut(targets),
    temperature,
  )
  join = lambda x: jnp.swapaxes(x, 0, 1).reshape(r, -1)[:, :k]
  return TokenLogps(*jax.tree.map(join, found))


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _chunked(contracted, hidden, heads, targets, temperature):
  """`token_logps` of [chunks, R, chunk, ...]; the policy is the first model."""
  return _forward(contracted, hidden, heads, targets, temperature)[0]


def _forward(contracted, hidden, heads, targets, temperature):
  def one(inputs):
    x, target = inputs
    logits, *others = _logits(contracted, x, heads, temperature)
    total = jax.nn.logsumexp(logits, axis=-1)
    chosen = jnp.sum(jnp.where(_is(target, logits), logits, 0.0), axis=-1)
    probs = jnp.exp(logits - total[..., None])
    mean = jnp.sum(probs * logits, axis=-1)
    divergence = None
    for other in others:
      # Near the reference, a difference of means would be lost to rounding.
      apart = logits - total[..., None] - _log_softmax(other)
      divergence = jnp.sum(probs * apart, axis=-1)
    return (chosen - total, total - mean, divergence), total

  found, totals = _over_chunks(one, (hidden, targets))
  return found, (hidden, heads, targets, temperature, totals, *found[1:])


def _backward(contracted, saved, cotangents):
  hidden, heads, targets, temperature, totals, *means = saved

  def one(d_head, inputs):
    x, target, total, (entropy, divergence), (d_logp, d_entropy, d_kl) = inputs
    logits, *others = _logits(contracted, x, heads, temperature)
    logps = logits - total[..., None]
    probs = jnp.exp(logps)
    # d logp = onehot - p; d entropy = -p (log p + entropy).
    d_logits = d_logp[..., None] * (_is(target, logps) - probs)
    d_logits -= d_entropy[..., None] * probs * (logps + entropy[..., None])
    for other in others:
      # d KL(p || q) = p (log p - log q - KL).
      apart = logps - _log_softmax(other) - divergence[..., None]
      d_logits += d_kl[..., None] * probs * apart
    d_logits /= temperature
    rows = lambda y: y.reshape(-1, y.shape[-1])
    d_x, d_kernel = transposed_products(
      rows(d_logits), rows(x[0]), heads[0], contracted[0]
    )
    return d_head + d_kernel, d_x.reshape(x[0].shape).astype(x[0].dtype)

  inputs = (hidden, targets, totals, means, cotangents)
  start = jnp.zeros(heads[0].shape, jnp.float32)
  if len(targets) == 1:
    d_head, d_hidden = one(start, jax.tree.map(lambda x: x[0], inputs))
    d_hidden = d_hidden[None]
  else:
    d_head, d_hidden = jax.lax.scan(one, start, inputs)
  none = (None,) * (len(heads) - 1)  # The reference has no gradients.
  d_head = d_head.astype(heads[0].dtype)
  return (d_hidden, *none), (d_head, *none), None, None


_chunked.defvjp(_forward, _backward)


def _over_chunks(function: Any, inputs: Any) -> Any:
  """`lax.map`, without a loop around a single chunk."""
  if len(inputs[-1]) == 1:
    only = function(jax.tree.map(lambda x: x[0], inputs))
    return jax.tree.map(lambda x: x[None], only)
  return jax.lax.map(function, inputs)


def _logits(contracted, hidden, heads, temperature) -> list[jax.Array]:
  """float32 [R, chunk, V] of each model."""

  def of(x, head, axis):
    logits = product(x.reshape(-1, x.shape[-1]), head, axis)
    return logits.reshape(*x.shape[:-1], -1) / temperature

  return [of(*model) for model in zip(hidden, heads, contracted, strict=True)]


def _log_softmax(logits: jax.Array) -> jax.Array:
  """As the policy's are made, so that equal logits are no distance apart."""
  return logits - jax.nn.logsumexp(logits, axis=-1, keepdims=True)


def _is(target: jax.Array, logits: jax.Array) -> jax.Array:
  """Where the logit of the target is; can be split over V, unlike an index."""
  return jnp.arange(logits.shape[-1]) == target[..., None]
