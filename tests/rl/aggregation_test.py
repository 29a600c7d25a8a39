"""Averages over tokens: by hand, and the same from micro-batches."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from promptrl_jax.rl.aggregation import AGGREGATIONS, aggregation_weights
from promptrl_jax.rl.masked import masked_sum

MASK = jnp.array(
  [[True, True, True, True], [True, False, False, False], [False] * 4]
)
LOSSES = jnp.array([[1.0, 2.0, 3.0, 6.0], [8.0, jnp.nan, 5.0, 5.0], [9.0] * 4])


def length_of(kind):
  return 5 if kind == 'constant' else None


@pytest.mark.parametrize(
  ('kind', 'expected'),
  [
    ('token_mean', (12 + 8) / 5),
    ('sequence_mean', (3 + 8) / 2),
    ('constant', (12 + 8) / (2 * 5)),
  ],
)
def test_means_by_hand(kind, expected):
  weights, denominator = jax.jit(aggregation_weights, static_argnums=(1, 2))(
    MASK, kind, length_of(kind)
  )
  total = masked_sum(LOSSES, weights)
  np.testing.assert_allclose(total / denominator, expected, rtol=1e-6)
  np.testing.assert_array_equal(weights != 0, MASK)


@pytest.mark.parametrize('kind', AGGREGATIONS)
def test_micro_batches_add_up(kind):
  losses = jax.random.normal(jax.random.key(0), (8, 6))
  mask = jax.random.bernoulli(jax.random.key(1), 0.4, (8, 6))

  def sums(losses, mask):
    weights, denominator = aggregation_weights(mask, kind, length_of(kind))
    return masked_sum(losses, weights), denominator

  whole = sums(losses, mask)
  pieces = jax.vmap(sums)(losses.reshape(4, 2, 6), mask.reshape(4, 2, 6))
  for one, many in zip(whole, pieces, strict=True):
    np.testing.assert_allclose(one, many.sum(), rtol=1e-5)


@pytest.mark.parametrize('kind', AGGREGATIONS)
def test_a_batch_without_tokens_has_zero_weights(kind):
  weights, denominator = aggregation_weights(
    jnp.zeros((2, 3), bool), kind, length_of(kind)
  )
  assert denominator == 0.0
  np.testing.assert_array_equal(weights, 0.0)


def test_bad_settings_are_refused():
  with pytest.raises(ValueError, match="'mean'.*token_mean"):
    aggregation_weights(MASK, 'mean')
  with pytest.raises(ValueError, match="'constant' with constant_length=None"):
    aggregation_weights(MASK, 'constant')
  with pytest.raises(ValueError, match="'token_mean' with constant_length=4"):
    aggregation_weights(MASK, 'token_mean', 4)
  with pytest.raises(ValueError, match='constant_length=0'):
    aggregation_weights(MASK, 'constant', 0)
  with pytest.raises(AssertionError):
    aggregation_weights(MASK[0], 'token_mean')
