"""Choosing one of K candidate answers, with a critic for those not shown.

An actor gives a logit to each candidate of a query, one candidate is shown and
rewarded, a critic scores all. Generalised policy optimisation, two ways:

  shown       A = reward - expected score ─► loss of its log-probability
  candidates  rewards of all, the critic's where there is none ─► standardised
              within the query ─► loss over all candidates

The critic learns by `losses.value_loss` on shown candidates, or from pairs by
`preference.preference_loss`; divergence and entropy of the actor are
`kl.exact_kl` and `losses.categorical_entropy`.
"""

from __future__ import annotations

import chex
import jax
import jax.numpy as jnp

from promptrl_jax.rl.losses import mask_logits
from promptrl_jax.rl.masked import keep, masked_mean, masked_sum
from promptrl_jax.rl.policy_losses import make_policy_loss_fn


def critic_advantages(
  rewards: jax.Array,
  scores: jax.Array,
  old_logps: jax.Array,
  mask: jax.Array | None = None,
) -> jax.Array:
  """Returns how much better the shown candidate was than was to be expected.

    A = reward - sum_k p_k score_k

  For `losses.clipped_policy_loss` on the log-probability of the shown one. The
  score of the shown candidate itself would be no baseline: what is left of the
  reward then is 0 in the mean as soon as the critic is right, for good and bad
  candidates alike, and the actor learns nothing.

  Args:
    rewards: `[B]`, of the shown candidates.
    scores: `[B, K]`, of the critic; constants.
    old_logps: `[B, K]`, log-probabilities of the actor that chose.
    mask: `[B, K]` bool, candidates that exist; None counts all.

  Returns:
    `[B]` advantages.
  """
  chex.assert_rank([rewards, scores], [1, 2])
  chex.assert_equal_shape_prefix([rewards, scores], 1)
  chex.assert_equal_shape([scores, old_logps])
  expected = masked_sum(scores, keep(jnp.exp(old_logps), mask), axis=1)
  return jax.lax.stop_gradient(rewards - expected)


def impute_rewards(
  rewards: jax.Array,
  shown: jax.Array,
  scores: jax.Array,
  old_logps: jax.Array,
  *,
  max_weight: float = 1.0,
) -> jax.Array:
  """Returns a reward for every candidate, the critic's where none was given.

    r_k = score_k + [k shown] min(1 / p_k, max_weight) (reward - score_k)

  with p_k the probability by which k was shown. With `max_weight=1` the shown
  candidate has its reward and the others their score. Without a bound each r_k
  is unbiased whatever the critic says, at the price of variance: "Doubly Robust
  Policy Evaluation and Learning", Dudik et al., 2011
  (https://arxiv.org/abs/1103.4601).

  Args:
    rewards: `[B]`, of the shown candidates.
    shown: `[B]` int, which one was shown.
    scores: `[B, K]`, of the critic; constants.
    old_logps: `[B, K]`, log-probabilities of the actor that chose.
    max_weight: bound of the importance weight, at least 1.

  Returns:
    `[B, K]` rewards.
  """
  if not max_weight >= 1:
    raise ValueError(
      f'max_weight={max_weight}: expected 1 (rewards as they are) or more'
    )
  chex.assert_rank([rewards, shown, scores], [1, 1, 2])
  chex.assert_equal_shape_prefix([rewards, shown, scores], 1)
  chex.assert_equal_shape([scores, old_logps])
  weight = jnp.minimum(jnp.exp(-old_logps), max_weight)
  is_shown = jnp.arange(scores.shape[1]) == jnp.asarray(shown)[:, None]
  correction = jnp.where(is_shown, weight * (rewards[:, None] - scores), 0)
  return jax.lax.stop_gradient(scores + correction)


def candidate_advantages(
  rewards: jax.Array, mask: jax.Array | None = None, epsilon: float = 1e-8
) -> jax.Array:
  """Returns rewards standardised within each query.

    A_k = (r_k - mean r) / sqrt(Var(r) + epsilon)

  Args:
    rewards: `[B, K]`, of `impute_rewards`.
    mask: `[B, K]` bool, candidates that exist; None counts all.
    epsilon: added to the variance, in squared units of reward.

  Returns:
    `[B, K]` advantages, 0 where invalid, and exactly 0 for a query whose
    rewards are all equal.
  """
  chex.assert_rank(rewards, 2)
  if mask is None:
    mask = jnp.ones(jnp.shape(rewards), bool)
  chex.assert_equal_shape([rewards, mask])
  valid = jnp.asarray(mask, bool)
  low = jnp.min(rewards, axis=1, keepdims=True, where=valid, initial=jnp.inf)
  shifted = keep(rewards - low, valid)
  centered = shifted - masked_mean(shifted, valid, axis=1, keepdims=True)
  squares = jnp.square(centered)
  variance = masked_mean(squares, valid, axis=1, keepdims=True)
  return keep(centered / jnp.sqrt(variance + epsilon), valid)


def candidate_policy_loss(
  logits: jax.Array,
  old_logps: jax.Array,
  advantages: jax.Array,
  mask: jax.Array | None = None,
  clip_low: float = 0.2,
  clip_high: float = 0.2,
) -> tuple[jax.Array, dict[str, jax.Array]]:
  """Sums the clipped surrogate over queries, in expectation over candidates.

    ratio = p_k / old_k
    loss  = -sum_b sum_k old_k o_k,  o_k as in `losses.clipped_objective`

  At ratio 1 its gradient is that of `-sum_b sum_k p_k A_k`: as all candidates
  have an advantage, none needs to be sampled.

  Args:
    logits: `[B, K]` of the actor.
    old_logps: `[B, K]`, log-probabilities of the actor that chose.
    advantages: `[B, K]`, of `candidate_advantages`.
    mask: `[B, K]` bool, candidates that exist; None counts all. A row without
      any is a query that does not count.
    clip_low: how far below 1 the ratio is followed.
    clip_high: how far above 1.

  Returns:
    Scalar loss sum and metric sums of `losses.clipped_policy_loss`, to be
    divided by the number of queries.
  """
  chex.assert_rank(logits, 2)
  logps = jax.nn.log_softmax(mask_logits(logits, mask))
  weights = keep(jnp.exp(jax.lax.stop_gradient(old_logps)), mask)
  loss_fn = make_policy_loss_fn('ppo', clip_low=clip_low, clip_high=clip_high)
  return loss_fn(logps, old_logps, advantages, weights)
