"""Attention over packed rows equals attention with the dense mask."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from promptrl_jax.models import attention
from promptrl_jax.testing import tiny

R, P, J, C, K, U, H = 2, 5, 3, 4, 2, 3, 8


@pytest.fixture
def row():
  rng = np.random.default_rng(0)
  size = P + J * C
  queries = rng.normal(size=(R, size, K, U, H)).astype(np.float32)
  keys, values = rng.normal(size=(2, R, size, K, H)).astype(np.float32)
  causal = lambda n: np.tril(np.ones((n, n), bool))
  mask = attention.SharedPrefix(
    prompts=np.broadcast_to(causal(P), (R, P, P)),
    prefix=rng.random((R, J * C, P)) < 0.7,
    lanes=np.broadcast_to(causal(C), (R, J, C, C)),
  )
  return queries, keys, values, mask


def as_dense(mask):
  """Returns the same mask as bool [R, S, S]."""
  dense = np.zeros((R, P + J * C, P + J * C), bool)
  dense[:, :P, :P] = mask.prompts
  dense[:, P:, :P] = mask.prefix
  for lane in range(J):
    where = slice(P + lane * C, P + (lane + 1) * C)
    dense[:, where, where] = mask.lanes[:, lane]
  return dense


def test_equals_the_dense_mask(row):
  *inputs, mask = row
  np.testing.assert_allclose(
    attention.attend_shared(*inputs, mask),
    attention.attend(*inputs, as_dense(mask)),
    atol=1e-6,
  )


def test_the_fused_kernel_is_given_what_it_takes(row, monkeypatch):
  *inputs, mask = row
  # cuDNN needs a GPU; the same call computes the same by XLA.
  fused = jax.nn.dot_product_attention
  implementations = []

  def by_xla(*arrays, implementation, **options):
    implementations.append(implementation)
    return fused(*arrays, implementation='xla', **options)

  monkeypatch.setattr(jax.nn, 'dot_product_attention', by_xla)
  mask = as_dense(mask)
  config = dataclasses.replace(tiny.CONFIG, attention='cudnn')
  np.testing.assert_allclose(
    attention.attend_fn(config)(*inputs, mask),
    attention.attend(*inputs, mask),
    atol=1e-5,
  )
  assert implementations == ['cudnn']


def test_gradients_equal_those_of_the_dense_mask(row):
  *inputs, mask = row
  weights = np.random.default_rng(1).normal(size=inputs[0].shape)

  def loss(attend, mask, inputs):
    return jnp.sum(attend(*inputs, mask) * weights)

  shared = jax.grad(loss, 2)
  for a, b in zip(
    shared(attention.attend_shared, mask, inputs),
    shared(attention.attend, as_dense(mask), inputs),
    strict=True,
  ):
    np.testing.assert_allclose(a, b, atol=1e-5)


def test_large_scores_do_not_overflow(row):
  queries, keys, values, mask = row
  attended = attention.attend_shared(queries * 1e3, keys, values, mask)
  assert np.isfinite(attended).all()
