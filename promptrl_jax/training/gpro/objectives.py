"""The losses of one actor-critic pair of GPRO, as sums over rows.

Formulas are those of `rl`; here they meet rows with several kinds of feedback.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from promptrl_jax.rl import gpro, kl, losses, policy_losses
from promptrl_jax.rl.masked import normalize
from promptrl_jax.training.gpro.config import GPROConfig
from promptrl_jax.training.gpro.replay import PAIR, RATING, THUMBS, Replay


class Feedback(NamedTuple):
  """Rows that a critic learns from.

  Attributes:
    reward: `[M]`, see `replay.Replay`.
    kind: `[M]`.
    weight: `[M]`, 0 for a row that does not count.
  """

  reward: jax.Array
  kind: jax.Array
  weight: jax.Array


def critic_losses(
  scores: jax.Array, rows: Feedback, rating_noise: float
) -> jax.Array:
  """Returns weighted negative log-likelihoods `[M]`, up to a constant.

    rating  (sigmoid(s) - r)^2 / (2 noise^2)
    thumbs  -r log sigmoid(s) - (1 - r) log sigmoid(-s)
    pair    the same, with the difference of the two scores as s

  Each row has the likelihood of its kind: a Gaussian (squared error),
  Bernoulli, or Bradley-Terry, in which a tie is half a win of both. As all are
  log-likelihoods, they may be added.

  Args:
    scores: `[M]` logits s of the critic; differences for pairs.
  """
  error = jax.nn.sigmoid(scores) - rows.reward
  squared = jnp.square(error) / (2 * rating_noise**2)
  binary = optax.sigmoid_binary_cross_entropy(scores, rows.reward)
  return rows.weight * jnp.where(rows.kind == RATING, squared, binary)


def critic_curvature(
  scores: jax.Array, rows: Feedback, rating_noise: float
) -> jax.Array:
  """Returns the expected second derivatives of `critic_losses`, `[M]`."""
  probabilities = jax.nn.sigmoid(scores)
  slope = probabilities * (1 - probabilities)
  squared = jnp.square(slope / rating_noise)
  return rows.weight * jnp.where(rows.kind == RATING, squared, slope)


def prior_precision(size: int, scale: float) -> jax.Array:
  """Returns the precision `[size]` of the prior of the critic's weights.

  A weight of n inputs has the variance scale^2 / n, the bias, which is the
  last one, scale^2: see `models.candidates.CandidateCritic`.
  """
  return jnp.full(size, size - 1.0).at[-1].set(1) / scale**2


class Choices(NamedTuple):
  """Rows that an actor learns from.

  Attributes:
    mask: `[M, G]` bool.
    shown: `[M]` int.
    valid: `[M]` bool, rows that count.
    logps: `[M, G]` of the actor before this update.
    weight: `[M]`, bounded importance weights of the shown candidates.
    anchor_logits: `[M, G]`, masked.
    advantages: `[M, G]`, or `[M]` of the shown candidates.
  """

  mask: jax.Array
  shown: jax.Array
  valid: jax.Array
  logps: jax.Array
  weight: jax.Array
  anchor_logits: jax.Array
  advantages: jax.Array


def actor_loss(
  config: GPROConfig, logits: jax.Array, rows: Choices
) -> tuple[jax.Array, dict[str, jax.Array]]:
  """Sums clipped surrogate, KL divergence and minus entropy over rows.

  Ratios are relative to the actor before this update, not to the one that
  chose: rows of a replay are old, and would all be clipped. The policy that
  chose enters by importance weights alone, as in "Batch size-invariance for
  policy optimization", Hilton et al., 2022 (https://arxiv.org/abs/2110.00641).
  """
  mask = rows.mask & rows.valid[:, None]
  if config.advantage == 'candidates':
    policy, metrics = gpro.candidate_policy_loss(
      logits, rows.logps, rows.advantages, mask, config.clip, config.clip
    )
  else:
    policy, metrics = clipped_loss_fn(config)(
      losses.categorical_logps(logits, rows.shown, rows.mask),
      jnp.take_along_axis(rows.logps, rows.shown[:, None], axis=1)[:, 0],
      rows.advantages,
      rows.valid,
      rows.weight * rows.valid,
    )
  masked = losses.mask_logits(logits, rows.mask)
  divergence = jnp.sum(kl.exact_kl(masked, rows.anchor_logits) * rows.valid)
  entropy = jnp.sum(losses.categorical_entropy(logits, rows.mask) * rows.valid)
  loss = policy + config.kl_coef * divergence - config.entropy_coef * entropy
  return loss, {
    'loss': loss,
    'kl': divergence,
    'entropy': entropy,
    'clip_fraction': metrics['clip_fraction'],
  }


def clipped_loss_fn(config: GPROConfig) -> policy_losses.PolicyLossFn:
  """PPO's loss of single choices, clipped as `config` says."""
  return policy_losses.make_policy_loss_fn(
    'ppo', clip_low=config.clip, clip_high=config.clip
  )


def rewards(replay: Replay, scores: jax.Array) -> jax.Array:
  """Returns `[W]` rewards of the shown candidates.

  Where none was rated by itself (one of a pair, or before its feedback
  arrives), the critic's score `[W, G]` stands in for it.
  """
  own = jnp.take_along_axis(scores, replay.shown[:, None], axis=1)[:, 0]
  is_rated = (replay.kind == RATING) | (replay.kind == THUMBS)
  return jnp.where(is_rated, replay.reward, own)


def advantages(
  config: GPROConfig,
  replay: Replay,
  valid: jax.Array,
  scores: jax.Array,
  logps: jax.Array,
) -> jax.Array:
  """Returns `[W, G]` advantages of all candidates, or `[W]` of the shown ones.

  Both are standardised, the first within each query, the second over all.

  Args:
    replay: of W rows.
    valid: `[W]` bool, rows that count.
    scores: `[W, G]` satisfaction in [0, 1] that the critic expects.
    logps: `[W, G]` of the actor before this update.
  """
  observed = rewards(replay, scores)
  if config.advantage == 'shown':
    own = gpro.critic_advantages(observed, scores, logps, replay.mask)
    return normalize(own, valid)
  imputed = gpro.impute_rewards(
    observed, replay.shown, scores, replay.logps, max_weight=config.max_weight
  )
  return gpro.candidate_advantages(imputed, replay.mask)


def disappointments(replay: Replay, scores: jax.Array) -> jax.Array:
  """Returns how far feedback is below what was expected of it, `[W]` in [0, 1].

  What is shown is what the old taste liked, so that another taste shows as
  feedback that is lower than expected, seldom as higher. Which side of a pair
  is liked may change either way: there the error counts with any sign.

  Args:
    replay: of W rows; those without feedback have no meaning.
    scores: `[W, G]` expected satisfaction.
  """
  pair = jnp.stack([replay.shown, replay.other], axis=1)
  first, second = jnp.take_along_axis(scores, pair, axis=1).T
  # sigmoid(s - s') of two logits, from sigmoid(s) and sigmoid(s').
  wins, defeats = first * (1 - second), second * (1 - first)
  preferred = wins / jnp.maximum(wins + defeats, 1e-6)
  return jnp.where(
    replay.kind == PAIR,
    jnp.abs(replay.reward - preferred),
    jnp.maximum(first - replay.reward, 0),
  )
