"""Log-probs of given tokens, without the logits of a whole batch in memory.

The logits of S tokens, their softmax and its gradient take S x V numbers each,
which is most of the memory of an update. This module computes the logits of one
chunk of tokens at a time, and recomputes them in the backward pass.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from promptrl_jax.models.kernels import product, transposed_products


class Projected(NamedTuple):
  """Next-token distributions, given by hidden states and output projection.

  Attributes:
    hidden: [R, S, D], hidden states after the last norm.
    head: output projection, [D, V], or [V, D] if tied to the embedding.
    contracted: the axis of `head` that has length D.
  """

  hidden: jax.Array
  head: jax.Array
  contracted: int = 0


class TokenLogps(NamedTuple):
  """Statistics of tokens under the policy, float32 [R, S], in nats.

  Attributes:
    divergences: KL(policy || reference) of the distributions; None without a
      reference.
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
  """Computes log-probs of `targets`, entropies and KL divergences.

  Gradients flow into `policy` only.

  Args:
    temperature: scalar that divides the logits of policy and reference.
    chunk: number of tokens per row whose logits exist at a time; None: all S.
    reference: distributions of the KL reference at the same positions.
  """
  r, s = targets.shape
  chunk = s if chunk is None else min(chunk, s)
  padding = -s % chunk
  temperature = jnp.asarray(temperature, jnp.float32)

  def cut(x):
    # [R, S, ...] -> [chunks, R, chunk, ...]; R may be split over devices.
    x = jnp.pad(x, [(0, 0), (0, padding)] + [(0, 0)] * (x.ndim - 2))
    return jnp.swapaxes(x.reshape(r, -1, chunk, *x.shape[2:]), 0, 1)

  models = (policy,) if reference is None else (policy, reference)
  chunks = _chunked(  # pyright: ignore[reportGeneralTypeIssues]
    tuple(model.contracted for model in models),
    tuple(cut(model.hidden) for model in models),
    tuple(model.head for model in models),
    cut(targets),
    temperature,
  )

  def join(x):
    return jnp.swapaxes(x, 0, 1).reshape(r, -1)[:, :s]

  return TokenLogps(*jax.tree.map(join, chunks))


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _chunked(contracted, hidden, heads, targets, temperature):
  """Computes `token_logps` of chunks; the first model is the policy."""
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
      # The difference is taken per logit: near the reference, a difference of
      # means would be lost to rounding.
      log_ratio = logits - total[..., None] - _log_softmax(other)
      divergence = jnp.sum(probs * log_ratio, axis=-1)
    return (chosen - total, total - mean, divergence), total

  outputs, totals = _over_chunks(one, (hidden, targets))
  return outputs, (hidden, heads, targets, temperature, totals, *outputs[1:])


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
      centred = logps - _log_softmax(other) - divergence[..., None]
      d_logits += d_kl[..., None] * probs * centred
    d_logits /= temperature
    d_x, d_kernel = transposed_products(
      _rows(d_logits), _rows(x[0]), heads[0], contracted[0]
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
  """Applies `lax.map`, or calls the function directly on a single chunk."""
  if len(inputs[-1]) == 1:
    only = function(jax.tree.map(lambda x: x[0], inputs))
    return jax.tree.map(lambda x: x[None], only)
  return jax.lax.map(function, inputs)


def _logits(contracted, hidden, heads, temperature) -> list[jax.Array]:
  """Returns the logits of each model, float32 [R, chunk, V]."""

  def project(x, head, axis):
    logits = product(_rows(x), head, axis)
    return logits.reshape(*x.shape[:-1], -1) / temperature

  return [
    project(*model) for model in zip(hidden, heads, contracted, strict=True)
  ]


def _rows(x: jax.Array) -> jax.Array:
  """Flattens all axes but the last."""
  return x.reshape(-1, x.shape[-1])


def _log_softmax(logits: jax.Array) -> jax.Array:
  """Computes log-probs as for the policy, so that equal logits have KL 0."""
  return logits - jax.nn.logsumexp(logits, axis=-1, keepdims=True)


def _is(target: jax.Array, logits: jax.Array) -> jax.Array:
  """Returns a one-hot mask of the target; unlike an index, it shards over V."""
  return jnp.arange(logits.shape[-1]) == target[..., None]
