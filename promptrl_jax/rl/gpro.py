"""Policy gradients for choosing one of G candidates, with a critic of all.

An actor gives a logit to each of the G candidate answers to a prompt, one
candidate is shown and rewarded, and a critic scores all of them. There are two
ways to train the actor:

  shown       A = reward - expected score ─► loss of the shown candidate
  candidates  rewards of all candidates, imputed by the critic if not observed
              ─► standardised within the prompt ─► loss over all candidates

A critic learns by `losses.value_loss` on shown candidates, or from pairs by
`preference.preference_loss`. That of `training/gpro` has both at once, with
ties, and needs the curvature: `objectives.critic_losses`, of which the pairs
without ties are the latter. The KL divergence and entropy of the actor are
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
  """Returns the reward of the shown candidate minus the expected score.

    A = reward - sum_g p_g score_g

  For the policy loss 'ppo' on the log-probability of the shown candidate. The
  score of the shown candidate itself would be a wrong baseline: as soon as the
  critic is right, the advantages of good and bad candidates alike would have
  mean 0, and the actor would learn nothing.

  Args:
    rewards: `[B]`, of the shown candidates.
    scores: `[B, G]`, of the critic; constants.
    old_logps: `[B, G]`, log-probabilities of the actor that chose.
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
  """Returns a reward for every candidate, imputed by the critic if not shown.

    r_g = score_g + [g shown] min(1 / p_g, max_weight) (reward - score_g)

  with p_g the probability of showing g. With `max_weight=1` the shown candidate
  has its reward and the others their score. Without a bound each r_g is
  unbiased even if the critic is wrong, but has more variance: "Doubly Robust
  Policy Evaluation and Learning", Dudik et al., 2011
  (https://arxiv.org/abs/1103.4601).

  Args:
    rewards: `[B]`, of the shown candidates.
    shown: `[B]` int, index of the shown candidate.
    scores: `[B, G]`, of the critic; constants.
    old_logps: `[B, G]`, log-probabilities of the actor that chose.
    max_weight: bound of the importance weight, at least 1.
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
  """Returns rewards `[B, G]` standardised within each prompt.

    A_g = (r_g - mean r) / sqrt(Var(r) + epsilon), 0 where invalid

  They are exactly 0 for a prompt whose rewards are all equal.
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
  """Sums the clipped surrogate over prompts, in expectation over candidates.

    ratio = p_g / old_g
    loss  = -sum_b sum_g old_g o_g,  o_g as in `losses.clipped_objective`

  At ratio 1 its gradient is that of `-sum_b sum_g p_g A_g`: as all candidates
  have an advantage, none needs to be sampled.

  Args:
    logits: `[B, G]` of the actor.
    old_logps: `[B, G]`, log-probabilities of the actor that chose.
    mask: `[B, G]` bool, valid candidates; None counts all. A prompt
      without any valid candidate does not count.

  Returns:
    Scalar loss sum and metric sums of `losses.policy_loss`, to be divided by
    the number of prompts.
  """
  chex.assert_rank(logits, 2)
  logps = jax.nn.log_softmax(mask_logits(logits, mask))
  weights = keep(jnp.exp(jax.lax.stop_gradient(old_logps)), mask)
  loss_fn = make_policy_loss_fn('ppo', clip_low=clip_low, clip_high=clip_high)
  return loss_fn(logps, old_logps, advantages, weights)
