"""Divergence of the policy from a reference: estimated per token, or exact.

With tokens sampled from the policy all of these measure KL(policy ||
reference), in nats. Which one to take:

  k1  unbiased, may be negative. As a reward (`token_rewards`, `penalize`) its
      gradient is that of the divergence; as a loss its expected gradient is 0.
  k2  biased, never negative. As a loss, its gradient on policy is that of the
      divergence: that of k1 as a reward.
  k3  unbiased, never negative, little variance: the one to watch, and the loss
      term of GRPO.

Exact is the sum over the vocabulary (`exact_kl`): no variance but that of the
texts, and twice the logits. As a loss its gradient is that of the divergence at
each place. As a reward it says which texts lead to places of divergence, not
which token diverges: there it is the same for all tokens. k2 and k3 as rewards
hardly pull near the reference.
"""

from __future__ import annotations

import chex
import jax
import jax.numpy as jnp

from promptrl_jax.rl.masked import keep

ESTIMATES = ('k1', 'k2', 'k3')
KINDS = (*ESTIMATES, 'exact')


def _estimate(log_ratio: jax.Array, kind: str) -> jax.Array:
  """Returns an estimate from `log_ratio` = ref_logp - logp."""
  if kind == 'k1':
    return -log_ratio
  if kind == 'k2':
    return 0.5 * jnp.square(log_ratio)
  # expm1 keeps the small values that exp(x) - 1 loses to rounding.
  return jnp.expm1(log_ratio) - log_ratio


def token_kl(
  logps: jax.Array,
  ref_logps: jax.Array,
  mask: jax.Array | None = None,
  *,
  kind: str = 'k3',
  cap: float | None = None,
  min_prob: float | None = None,
  exact: jax.Array | None = None,
) -> jax.Array:
  """KL(policy || reference), estimated from the log-probability of each token.

    d = ref_logp - logp
    k1 = -d,  k2 = d^2 / 2,  k3 = exp(d) - 1 - d

  See "Approximating KL Divergence", Schulman, 2020
  (http://joschu.net/blog/kl-approx.html). Gradients flow into `logps` alone.

  Args:
    logps: `[...]`, under the policy.
    ref_logps: `[...]`, under the reference.
    mask: `[...]` booleans or weights; None counts everything.
    kind: 'k1', 'k2', 'k3', or 'exact', which is not an estimate.
    cap: largest value of a token, the truncated divergence; a token above it
      has the cap as its value and no gradient, also where exp(d) overflows.
    min_prob: tokens that the policy gives no more than this probability count
      0, the adaptive divergence; None counts all. The choice has no gradient.
    exact: `[...]`, see `exact_kl`, for the kind of that name; gradients flow
      into it.

  Returns:
    `[...]` nats, 0 where invalid.
  """
  if kind not in KINDS:
    raise ValueError(f'kind={kind!r}: expected one of {", ".join(KINDS)}')
  if cap is not None and cap <= 0:
    raise ValueError(f'cap={cap}: expected a positive number of nats, or None')
  chex.assert_equal_shape([logps, ref_logps])
  if kind != 'exact':
    given = jax.lax.stop_gradient(ref_logps) - logps
    measure = lambda log_ratio: _estimate(log_ratio, kind)
  elif exact is not None:
    chex.assert_equal_shape([logps, exact])
    given, measure = exact, lambda divergence: divergence
  else:
    raise ValueError(
      "kind='exact' without `exact`: expected the divergence over the "
      'vocabulary at each token'
    )
  given = keep(given, mask)
  if min_prob is not None:
    likely = jnp.exp(jax.lax.stop_gradient(logps)) > min_prob
    given = keep(given, likely)
  if cap is None:
    return measure(given)
  # Emptied before exp: the gradient of a minimum is 0 * inf = NaN otherwise.
  above = measure(jax.lax.stop_gradient(given)) > cap
  return jnp.where(above, cap, measure(jnp.where(above, 0.0, given)))


def penalize(
  advantages: jax.Array,
  divergence: jax.Array,
  mask: jax.Array,
  kl_coef: float | jax.Array,
) -> jax.Array:
  """Returns advantages less the price of each token's own divergence.

    A_t - kl_coef d_t, as a constant

  With d = k1, REINFORCE on them follows the gradient of `reward - kl_coef * KL`
  per token: it equals the gradient of k2 as a loss term. The divergence as a
  reward is that of InstructGPT (https://arxiv.org/abs/2203.02155), eq. 2.

  Args:
    advantages: `[...]`.
    divergence: `[...]`, see `token_kl`.
    mask: `[...]` bool.
    kl_coef: price in reward per nat.

  Returns:
    `[...]` advantages, 0 where invalid.
  """
  chex.assert_equal_shape([advantages, divergence, mask])
  return jax.lax.stop_gradient(keep(advantages - kl_coef * divergence, mask))


def exact_kl(logits: jax.Array, ref_logits: jax.Array) -> jax.Array:
  """Returns the divergence over the whole vocabulary.

    KL(p || q) = sum_v p_v (log p_v - log q_v)

  Kullback and Leibler, 1951 (https://doi.org/10.1214/aoms/1177729694).
  Exchange the arguments for the forward divergence. Logits of -inf are outcomes
  of probability 0: those of `logits` count nothing, those of `ref_logits` alone
  make the result infinite.

  Args:
    logits: `[..., V]` of the policy p.
    ref_logits: `[..., V]` of the reference q.

  Returns:
    `[...]` nats, never negative but for rounding. Gradients flow into both.
  """
  chex.assert_equal_shape([logits, ref_logits])
  logps = jax.nn.log_softmax(logits)
  ref_logps = jax.nn.log_softmax(ref_logits)
  possible = logps > -jnp.inf
  # Both sides are emptied: -inf minus -inf is NaN, in the gradient as well.
  difference = jnp.where(possible, logps, 0) - jnp.where(possible, ref_logps, 0)
  return jnp.sum(jnp.exp(logps) * difference, axis=-1)
