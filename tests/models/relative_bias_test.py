"""Buckets of distances, computed by hand, and their biases."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from promptrl_jax.models import relative_bias


def test_half_of_the_buckets_are_exact_and_the_rest_grow():
  # 8 exact, then 8 logarithmic ones from 8 to 128: a factor of sqrt(2) each.
  distances = np.array([0, 1, 7, 8, 11, 12, 15, 16, 31, 32, 64, 127, 128, 999])
  expected = [0, 1, 7, 8, 8, 9, 9, 10, 11, 12, 14, 15, 15, 15]
  actual = relative_bias.buckets(-distances, True, 32, 128)
  assert actual.tolist() == expected
  ahead = relative_bias.buckets(distances[1:], True, 32, 128)
  assert ahead.tolist() == [16 + bucket for bucket in expected[1:]]


def test_a_causal_query_uses_all_buckets_for_what_lies_before_it():
  offsets = np.array([5, 0, -1, -15, -16, -18, -19, -127, -128, -9999])
  actual = relative_bias.buckets(offsets, False, 32, 128)
  assert actual.tolist() == [0, 0, 1, 15, 16, 16, 17, 31, 31, 31]


@pytest.mark.parametrize('is_bidirectional', [True, False])
def test_the_bias_of_a_square_depends_on_the_offset_alone(is_bidirectional):
  table = jnp.asarray(np.random.default_rng(0).normal(size=(8, 2)))
  actual = relative_bias.square(table, 30, is_bidirectional, 20)
  for query, key in ((0, 29), (29, 0), (4, 4), (10, 12), (25, 3)):
    bucket = relative_bias.buckets(
      np.array(key - query), is_bidirectional, 8, 20
    )
    np.testing.assert_array_equal(actual[:, query, key], table[bucket])


def test_the_rows_of_a_causal_square_come_one_by_one():
  table = jnp.asarray(np.random.default_rng(0).normal(size=(8, 2)))
  square = relative_bias.square(table, 30, False, 20)
  row = jax.jit(relative_bias.row, static_argnums=(1, 3))
  for position in (0, 1, 17, 29):
    actual = row(table, 33, position, 20)
    seen = slice(0, position + 1)
    np.testing.assert_array_equal(actual[:, seen], square[:, position, seen])
