"""The baseline of ratings: by hand, and its effect in every batch."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from promptrl_jax.rl import rating_baseline
from promptrl_jax.rl.rating_baseline import RatingBaseline, rating_advantages

F, T = False, True


def seen(mean):
  return RatingBaseline(jnp.float32(mean), jnp.int32(1))


def test_the_mean_moves_with_each_rating():
  _, baseline = jax.jit(rating_advantages)(seen(1.0), jnp.array([-1.0, 1.0]))
  np.testing.assert_allclose(baseline.mean, 0.9802, rtol=1e-6)
  assert baseline.count == 3


def test_advantages_by_hand():
  # Against 0.5: 1.2 * 0.5 and -1.5. Against -1: 1.2 * 2, clipped, and 0.
  advantages, _ = rating_advantages(seen(0.5), jnp.array([1.0, -1.0]))
  np.testing.assert_allclose(advantages, [0.6, -1.5], rtol=1e-6)
  advantages, _ = rating_advantages(seen(-1.0), jnp.array([1.0, -1.0]))
  np.testing.assert_allclose(advantages, [2.0, 0.0])


@pytest.mark.parametrize('ratings', [[1, 1, 1, -1], [1, 1, 1, 1], [-1, -1]])
def test_baseline_and_weight_matter_in_mixed_batches_too(ratings):
  ratings = jnp.array(ratings, jnp.float32)
  one, _ = rating_advantages(seen(0.0), ratings)
  other, _ = rating_advantages(seen(0.4), ratings)
  assert (one != other).all()
  heavier, _ = rating_advantages(seen(0.0), ratings, positive_weight=1.5)
  np.testing.assert_array_equal(one != heavier, ratings > 0)


def test_the_first_fresh_rating_starts_the_mean():
  ratings = jnp.array([-1.0, jnp.nan, 1.0, -1.0])
  advantages, baseline = rating_advantages(
    rating_baseline.initial(),
    ratings,
    valid=jnp.array([T, F, T, T]),
    fresh=jnp.array([F, T, T, T]),
  )
  np.testing.assert_allclose(advantages, [-2.0, 0.0, 0.0, -2.0])
  np.testing.assert_allclose(baseline.mean, 0.98, rtol=1e-6)
  assert baseline.count == 2


def test_replayed_ratings_do_not_move_the_mean():
  advantages, baseline = rating_advantages(
    seen(0.5), jnp.array([1.0, -1.0]), fresh=jnp.zeros(2, bool)
  )
  assert baseline == seen(0.5)
  np.testing.assert_allclose(advantages, [0.6, -1.5], rtol=1e-6)


def test_nothing_fresh_and_nothing_seen_compares_with_zero():
  advantages, baseline = rating_advantages(
    rating_baseline.initial(), jnp.array([1.0]), fresh=jnp.zeros(1, bool)
  )
  np.testing.assert_allclose(advantages, [1.2], rtol=1e-6)
  assert baseline.count == 0


def test_two_batches_move_the_mean_as_one_does():
  ratings = jnp.array([1.0, -1.0, -1.0, 1.0, -1.0])
  start = rating_baseline.initial()
  _, whole = rating_advantages(start, ratings)
  _, half = rating_advantages(start, ratings[:2])
  _, both = rating_advantages(half, ratings[2:])
  np.testing.assert_allclose(whole.mean, both.mean, rtol=1e-6)
  assert whole.count == both.count == 5


def test_vmap_over_models():
  starts = jax.tree.map(lambda *x: jnp.stack(x), seen(0.0), seen(0.4))
  ratings = jnp.array([[1.0, -1.0], [1.0, 1.0]])
  advantages, _ = jax.vmap(rating_advantages)(starts, ratings)
  for i, mean in enumerate((0.0, 0.4)):
    expected, _ = rating_advantages(seen(mean), ratings[i])
    np.testing.assert_allclose(advantages[i], expected, rtol=1e-6)
