"""A running mean of ratings as a baseline, for updates from few ratings."""

from __future__ import annotations

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp

from promptrl_jax.rl.masked import keep


class RatingBaseline(NamedTuple):
  """What ratings have been so far, one for each model that is rated.

  Attributes:
    mean: [], exponential moving average of ratings.
    count: [] int32, ratings it has seen.
  """

  mean: jax.Array
  count: jax.Array


def initial() -> RatingBaseline:
  """A baseline that has seen nothing."""
  return RatingBaseline(jnp.zeros(()), jnp.zeros((), jnp.int32))


def rating_advantages(
  baseline: RatingBaseline,
  ratings: jax.Array,
  valid: jax.Array | None = None,
  fresh: jax.Array | None = None,
  *,
  decay: float = 0.99,
  positive_weight: float = 1.2,
  clip: float = 2.0,
) -> tuple[jax.Array, RatingBaseline]:
  """Returns ratings relative to what ratings have been.

    A_i  = clip(w_i (r_i - m), -clip, clip),  w_i = positive_weight if r_i > 0
    m   <- decay m + (1 - decay) r_i          for each fresh rating, in order

  All advantages are taken against the mean *before* the batch, so that no
  rating is compared with itself; a baseline that has seen nothing takes the
  first fresh rating as its mean. Nothing is standardised over the batch: that
  would subtract the mean of the batch and cancel baseline and weight in every
  batch that holds both signs, [1, 1, 1, -1] giving [.5, .5, .5, -1.5] whatever
  the two are. Source: the trainer of ReinforceClaw, which does standardise.

  Args:
    baseline: the state so far.
    ratings: `[N]`, in the order they were given, 0 meaning neutral; -1 or 1 for
      thumbs.
    valid: `[N]` bool, rows that count; None counts all.
    fresh: `[N]` bool, ratings seen for the first time; replayed ones do not
      move the mean. None takes all as fresh.
    decay: weight of the past.
    positive_weight: what positive ratings are multiplied by.
    clip: largest advantage.

  Returns:
    `[N]` advantages, 0 where invalid, and the new baseline. Keep the new one
    only if the model that was trained with them is kept.
  """
  ratings = jnp.asarray(ratings, jnp.result_type(ratings, jnp.float32))
  if valid is None:
    valid = jnp.ones(ratings.shape, bool)
  if fresh is None:
    fresh = jnp.ones(ratings.shape, bool)
  chex.assert_rank(ratings, 1)
  chex.assert_equal_shape([ratings, valid, fresh])
  valid = jnp.asarray(valid, bool)
  counted = valid & jnp.asarray(fresh, bool)

  def step(state, inputs):
    rating, is_counted = inputs
    moved = jnp.where(
      state.count > 0, decay * state.mean + (1 - decay) * rating, rating
    )
    mean = jnp.where(is_counted, moved, state.mean)
    return RatingBaseline(mean, state.count + is_counted), state

  state, before = jax.lax.scan(step, baseline, (ratings, counted))
  # With nothing seen, the state after the first fresh rating holds that rating.
  first = jnp.sum(keep(ratings, counted & (before.count == 0)))
  mean = jnp.where(baseline.count > 0, baseline.mean, first)
  weights = jnp.where(ratings > 0, positive_weight, 1.0)
  advantages = jnp.clip(weights * (ratings - mean), -clip, clip)
  return keep(advantages, valid), state
