"""The losses of one actor-critic pair of GPRO, as means over a minibatch.

Formulas are those of `rl`; here they meet rows with several kinds of feedback.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from promptrl_jax.rl import gpro, kl, losses, policy_losses, preference
from promptrl_jax.training.gpro.config import GPROConfig
from promptrl_jax.training.gpro.replay import PAIR, RATING, THUMBS
from promptrl_jax.training.state import Params


class Feedback(NamedTuple):
  """Rows that a critic learns from.

  Attributes:
    features: `[M, 2, D]`, of the shown candidate and of the other of a pair.
    reward: `[M]`, see `replay.Replay`.
    kind: `[M]`.
    weight: `[M]`, 0 for a row that does not count.
  """

  features: jax.Array
  reward: jax.Array
  kind: jax.Array
  weight: jax.Array


def critic_loss(
  scores: jax.Array, rows: Feedback, rating_noise: float
) -> jax.Array:
  """Sums negative log-likelihoods, in nats, up to a constant.

    rating  (sigmoid(s) - r)^2 / (2 noise^2)
    thumbs  -r log sigmoid(s) - (1 - r) log sigmoid(-s)
    pair    -r log sigmoid(s - s') - (1 - r) log sigmoid(s' - s)

  Each row has the likelihood of its kind: a Gaussian (squared error),
  Bernoulli, or Bradley-Terry, in which a tie is half a win of both. As all are
  log-likelihoods, they may be added.

  Args:
    scores: `[M, 2]` logits s and s' of the critic.
  """
  of = lambda kind: rows.weight * (rows.kind == kind)
  satisfaction = jax.nn.sigmoid(scores[:, 0])
  squared = losses.value_loss(
    satisfaction, satisfaction, rows.reward, of(RATING)
  )
  # A thumb is a comparison with a candidate whose score is 0.
  rival = jnp.where(rows.kind == PAIR, scores[:, 1], 0)
  zeros = jnp.zeros_like(rival)
  binary = of(THUMBS) + of(PAIR)
  won, _ = preference.preference_loss(
    scores[:, 0], rival, zeros, zeros, binary * rows.reward, beta=1.0
  )
  lost, _ = preference.preference_loss(
    rival, scores[:, 0], zeros, zeros, binary * (1 - rows.reward), beta=1.0
  )
  return squared / (2 * rating_noise**2) + won + lost


def prior_penalty(params: Params, prior: Params, scale: float) -> jax.Array:
  """Returns minus the log-density of parameters around a draw from the prior.

  An ensemble whose members are each pulled to their own draw approximates the
  posterior: "Uncertainty in Neural Networks: Approximately Bayesian
  Ensembling", Pearce et al., 2020 (https://arxiv.org/abs/1810.05546).
  """

  def penalty(drawn: jax.Array, value: jax.Array) -> jax.Array:
    # The variance of a weight is that of its initialisation.
    precision = drawn.shape[0] if drawn.ndim == 2 else 1.0
    return precision * jnp.sum(jnp.square(value - drawn))

  total = sum(jax.tree.leaves(jax.tree.map(penalty, prior, params)))
  return jnp.asarray(total) / (2 * scale**2)


class Choices(NamedTuple):
  """Rows that an actor learns from.

  Attributes:
    features: `[M, G, D]`.
    mask: `[M, G]` bool.
    shown: `[M]` int.
    logps: `[M, G]` of the actor before this update.
    weight: `[M]` importance weight of the shown candidate, for `shown`.
    anchor_logits: `[M, G]`.
    advantages: `[M, G]`, or `[M]` of the shown candidates.
    valid: `[M]` bool, rows that count.
  """

  features: jax.Array
  mask: jax.Array
  shown: jax.Array
  logps: jax.Array
  weight: jax.Array
  anchor_logits: jax.Array
  advantages: jax.Array
  valid: jax.Array


def actor_loss(
  logits: jax.Array, rows: Choices, config: GPROConfig
) -> tuple[jax.Array, dict[str, jax.Array]]:
  """Sums clipped surrogate, KL divergence and minus entropy over rows.

  Ratios are relative to the actor before this update, not to the one that
  chose: rows of a replay are old, and would all be clipped. The behaviour policy
  enters by importance weights alone, as in "Batch size-invariance for policy
  optimization", Hilton et al., 2022 (https://arxiv.org/abs/2110.00641).
  """
  mask = rows.mask & rows.valid[:, None]
  if config.advantage == 'candidates':
    policy, metrics = gpro.candidate_policy_loss(
      logits, rows.logps, rows.advantages, mask, config.clip, config.clip
    )
  else:
    policy, metrics = losses.policy_loss(
      policy_losses.ppo,
      losses.categorical_logps(logits, rows.shown, rows.mask),
      jnp.take_along_axis(rows.logps, rows.shown[:, None], axis=1)[:, 0],
      rows.advantages,
      rows.valid,
      rows.weight * rows.valid,
    )
  masked = losses.mask_logits(logits, rows.mask)
  anchor = losses.mask_logits(rows.anchor_logits, rows.mask)
  divergence = jnp.sum(kl.exact_kl(masked, anchor) * rows.valid)
  entropy = jnp.sum(losses.categorical_entropy(logits, rows.mask) * rows.valid)
  loss = policy + config.kl_coef * divergence - config.entropy_coef * entropy
  return loss, {
    'loss': loss,
    'kl': divergence,
    'entropy': entropy,
    'clip_fraction': metrics['clip_fraction'],
  }


def advantages(
  config: GPROConfig,
  replay: Any,
  scores: jax.Array,
  logps: jax.Array,
) -> jax.Array:
  """Returns `[W, G]` advantages of all candidates, or `[W]` of the shown ones.

  A candidate that was not rated by itself (of a pair, or before its feedback
  arrives) has the critic's score as its reward.

  Args:
    replay: see `replay.Replay`, of W rows.
    scores: `[W, G]` satisfaction in [0, 1] that the critic expects.
    logps: `[W, G]` of the actor before this update.
  """
  own = jnp.take_along_axis(scores, replay.shown[:, None], axis=1)[:, 0]
  rated = (replay.kind == RATING) | (replay.kind == THUMBS)
  rewards = jnp.where(rated, replay.reward, own)
  if config.advantage == 'shown':
    return gpro.critic_advantages(rewards, scores, logps, replay.mask)
  imputed = gpro.impute_rewards(
    rewards, replay.shown, scores, replay.logps, max_weight=config.max_weight
  )
  return gpro.candidate_advantages(imputed, replay.mask)
