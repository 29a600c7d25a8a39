"""A running mean of ratings as a baseline, for updates on few ratings."""

from __future__ import annotations

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp

from promptrl_jax.rl.masked import keep


class RatingBaseline(NamedTuple):
  """The running mean of ratings; keep one for each model that is rated.

  Attributes:
    mean: `[]`, exponential moving average of ratings.
    count: `[]` int32, number of ratings so far.
  """

  mean: jax.Array
  count: jax.Array


def initial() -> RatingBaseline:
  """Returns the baseline before the first rating."""
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
  """Returns ratings relative to the running mean, and the new baseline.

    A_i  = clip(w_i (r_i - m), -clip, clip),  w_i = positive_weight if r_i > 0
    m   <- decay m + (1 - decay) r_i          for each fresh rating, in order

  All advantages use the mean *before* the batch, so that no rating is compared
  with itself; without any rating before, the first fresh one is the mean.
  Advantages are not standardised over the batch: that would subtract the mean
  of the batch and cancel the baseline and the weight in every batch that has
  both signs ([1, 1, 1, -1] would give [.5, .5, .5, -1.5] for every baseline and
  weight). Source: the trainer of ReinforceClaw, which does standardise.

  Args:
    ratings: `[N]` in the order of rating, 0 meaning neutral; -1 and 1 for
      thumbs down and up.
    valid: `[N]` bool, rows that count; None counts all.
    fresh: `[N]` bool, ratings seen for the first time; replayed ratings do not
      change the mean. None takes all as fresh.

  Returns:
    `[N]` advantages, 0 where invalid, and the new baseline. Keep the new
    baseline only if the model trained with these advantages is kept.
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
  # Without earlier ratings, the first fresh one is the mean.
  first = jnp.sum(keep(ratings, counted & (before.count == 0)))
  mean = jnp.where(baseline.count > 0, baseline.mean, first)
  weights = jnp.where(ratings > 0, positive_weight, 1.0)
  advantages = jnp.clip(weights * (ratings - mean), -clip, clip)
  return keep(advantages, valid), state
