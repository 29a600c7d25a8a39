"""Masked reductions: padding has no influence, whatever its values."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from promptrl_jax.rl.masked import masked_mean, masked_sum, normalize


def test_sum_and_mean_ignore_padding_that_is_nan():
  x = jnp.array([1.0, 2.0, jnp.nan, 6.0])
  mask = jnp.array([True, True, False, True])
  assert masked_sum(x, mask) == 9.0
  assert masked_mean(x, mask) == 3.0
  gradient = jax.grad(masked_mean)(x, mask)
  np.testing.assert_allclose(gradient, [1 / 3, 1 / 3, 0, 1 / 3], rtol=1e-6)


def test_mean_of_nothing_is_zero():
  assert masked_mean(jnp.array([jnp.nan, 5.0]), jnp.zeros(2, bool)) == 0.0


def test_weights_can_weigh_sequences_equally():
  x = jnp.array([[1.0, 3.0, 0.0], [5.0, 0.0, 0.0]])
  weights = jnp.array([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]])
  assert masked_mean(x, weights) == 3.5


def test_axes_are_reduced_apart():
  x = jnp.array([[1.0, 3.0], [5.0, 7.0]])
  mask = jnp.array([[True, True], [True, False]])
  np.testing.assert_allclose(masked_mean(x, mask, axis=1), [2.0, 5.0])
  np.testing.assert_allclose(masked_sum(x, mask, axis=0), [6.0, 3.0])


@pytest.mark.parametrize(
  ('ddof', 'expected'),
  [(0, [1.7320508, -0.5773503]), (1, [1.5, -0.5])],
)
def test_population_and_sample_deviation(ddof, expected):
  result = normalize(jnp.array([1.0, 0.0, 0.0, 0.0]), ddof=ddof)
  np.testing.assert_allclose(result, expected + expected[1:] * 2, atol=1e-6)


@pytest.mark.parametrize('ddof', [0, 1])
def test_a_single_element_becomes_zero(ddof):
  assert normalize(jnp.array([3.7]), ddof=ddof) == 0.0
  masked = normalize(
    jnp.array([3.7, jnp.nan]), jnp.array([True, False]), ddof=ddof
  )
  np.testing.assert_array_equal(masked, [0.0, 0.0])


@pytest.mark.parametrize('n', [3, 7, 1000])
def test_equal_elements_become_exact_zeros(n):
  np.testing.assert_array_equal(normalize(jnp.full(n, 0.1)), jnp.zeros(n))


def test_nothing_valid_gives_zeros():
  result = normalize(jnp.array([jnp.nan, 1.0]), jnp.zeros(2, bool))
  np.testing.assert_array_equal(result, [0.0, 0.0])


def test_padding_does_not_alter_normalisation():
  x = jax.random.normal(jax.random.key(0), (5,))
  padded = jnp.concatenate([x, jnp.array([jnp.nan, 1e9, -1e9])])
  result = normalize(padded, jnp.arange(8) < 5)
  np.testing.assert_allclose(result[:5], normalize(x), rtol=1e-6)
  np.testing.assert_array_equal(result[5:], [0.0, 0.0, 0.0])


def test_shapes_that_differ_are_refused():
  with pytest.raises(AssertionError):
    masked_sum(jnp.ones((2, 1)), jnp.ones(2, bool))
