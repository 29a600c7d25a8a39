"""KL divergence of the policy from a reference: per-token estimates, or exact.

For tokens sampled from the policy all of these measure KL(policy || reference),
in nats. Which one to choose:

  k1  unbiased, may be negative. As a reward (`completions.token_rewards`,
      `penalize`) its gradient is that of the divergence; as a loss its expected
      gradient is 0.
  k2  biased, never negative. As a loss, its on-policy gradient is that of the
      divergence, the same as that of k1 as a reward.
  k3  unbiased, never negative, low variance: the estimate to monitor, and the
      loss term of GRPO. As a loss, its on-policy gradient is that of
      KL(reference || policy), the other direction: it holds on to what the
      reference finds probable.

The exact divergence sums over the vocabulary (`exact_kl`). Its only variance is
that of the sampled texts, and it needs the logits of both models. As a loss its
gradient is that of the divergence at each position. As a reward it does not
depend on the token that was sampled: it says which texts lead to positions of
divergence, not which token diverges. Near the reference, k2 and k3 as rewards
have almost no effect.
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
  """Returns KL(policy || reference) of each token, an estimate by default.

    d = ref_logp - logp
    k1 = -d,  k2 = d^2 / 2,  k3 = exp(d) - 1 - d

  See "Approximating KL Divergence", Schulman, 2020
  (http://joschu.net/blog/kl-approx.html). Gradients flow into `logps` alone.
  Arrays are `[...]`; the mask holds booleans or weights, None counts all.

  Args:
    cap: largest value of a token (truncated divergence). A token above it has
      the cap as its value and no gradient, also where exp(d) overflows.
    min_prob: tokens whose probability under the policy is at most this have the
      value 0 (adaptive divergence); None counts all tokens. No gradient flows
      through this choice.
    exact: `[...]` divergences of `exact_kl`, required for the kind 'exact';
      gradients flow into them.

  Returns:
    `[...]` nats, 0 where invalid.
  """
  if kind not in KINDS:
    raise ValueError(f'kind={kind!r}: expected one of {", ".join(KINDS)}')
  if cap is not None and cap <= 0:
    raise ValueError(f'cap={cap}: expected a positive number of nats, or None')
  chex.assert_equal_shape([logps, ref_logps])
  if kind != 'exact':
    inputs = jax.lax.stop_gradient(ref_logps) - logps
    measure = lambda log_ratio: _estimate(log_ratio, kind)
  elif exact is not None:
    chex.assert_equal_shape([logps, exact])
    inputs, measure = exact, lambda divergence: divergence
  else:
    raise ValueError(
      "kind='exact' without `exact`: expected the divergence over the "
      'vocabulary at each token'
    )
  inputs = keep(inputs, mask)
  if min_prob is not None:
    likely = jnp.exp(jax.lax.stop_gradient(logps)) > min_prob
    inputs = keep(inputs, likely)
  if cap is None:
    return measure(inputs)
  # Zeroed before exp: the gradient of a minimum would be 0 * inf = NaN.
  above = measure(jax.lax.stop_gradient(inputs)) > cap
  return jnp.where(above, cap, measure(jnp.where(above, 0.0, inputs)))


def penalize(
  advantages: jax.Array,
  divergence: jax.Array,
  mask: jax.Array,
  kl_coef: float | jax.Array,
) -> jax.Array:
  """Subtracts from each token's advantage a penalty on its own divergence.

    A_t - kl_coef d_t, as a constant, 0 where invalid

  With d = k1 of `token_kl`, REINFORCE on them follows the gradient of
  `reward - kl_coef * KL` per token: it equals the gradient of k2 as a loss
  term. The divergence as a reward is that of InstructGPT
  (https://arxiv.org/abs/2203.02155), eq. 2.
  """
  chex.assert_equal_shape([advantages, divergence, mask])
  return jax.lax.stop_gradient(keep(advantages - kl_coef * divergence, mask))


def exact_kl(logits: jax.Array, ref_logits: jax.Array) -> jax.Array:
  """Returns the KL divergence, summed over the whole vocabulary.

    KL(p || q) = sum_v p_v (log p_v - log q_v)

  Kullback and Leibler, 1951 (https://doi.org/10.1214/aoms/1177729694). Logits
  are `[..., V]`. Swap the arguments for the other direction. A logit of -inf is
  an outcome of probability 0: in `logits` it adds nothing, in `ref_logits`
  alone it makes the result infinite.

  Returns:
    `[...]` nats, never negative except for rounding. Gradients flow into both.
  """
  chex.assert_equal_shape([logits, ref_logits])
  logps = jax.nn.log_softmax(logits)
  ref_logps = jax.nn.log_softmax(ref_logits)
  possible = logps > -jnp.inf
  # Both sides are zeroed: -inf minus -inf is NaN, in the gradient as well.
  difference = jnp.where(possible, logps, 0) - jnp.where(possible, ref_logps, 0)
  return jnp.sum(jnp.exp(logps) * difference, axis=-1)
