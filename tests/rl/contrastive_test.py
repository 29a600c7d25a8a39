"""The contrastive loss against numbers worked out by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from promptrl_jax.rl.contrastive import info_nce

FIRST = jnp.array([[1.0, 0.0], [0.0, 1.0]])
SECOND = jnp.array([[1.0, 0.0], [0.6, 0.8]])


def test_the_loss_is_that_of_both_directions():
  loss, metrics = info_nce(FIRST, SECOND, jnp.array([0, 1]), temperature=0.5)
  # Cosines / 0.5: [[2, 1.2], [0, 1.6]].
  by_row = np.log1p(np.exp(-0.8)) + np.log1p(np.exp(-1.6))
  by_column = np.log1p(np.exp(-2.0)) + np.log1p(np.exp(-0.4))
  assert float(loss) == pytest.approx((by_row + by_column) / 2, rel=1e-6)
  assert float(metrics['accuracy']) == 2


def test_pairs_of_one_meaning_are_no_negatives():
  loss_fn = jax.jit(
    lambda x: info_nce(x, SECOND, jnp.array([7, 7]), temperature=0.5)[0]
  )
  assert float(loss_fn(FIRST)) == pytest.approx(0, abs=1e-6)
  np.testing.assert_allclose(jax.grad(loss_fn)(FIRST), 0, atol=1e-6)


def test_the_nearest_of_a_batch_is_counted():
  _, metrics = info_nce(SECOND[::-1], FIRST, jnp.array([0, 1]), temperature=1.0)
  assert float(metrics['accuracy']) == 0


def test_the_gradient_brings_a_pair_together():
  grad = jax.grad(
    lambda x: info_nce(x, SECOND, jnp.array([0, 1]), temperature=0.5)[0]
  )(FIRST)
  # The second text of pair 1 has a first coordinate that pair 0 has, too.
  assert float(grad[1] @ SECOND[1]) < 0
