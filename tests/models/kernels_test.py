"""Kernels in the layout of decoding."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from promptrl_jax.models import kernels


def arrays(shape=(24, 3, 5), rows=7):
  keys = jax.random.split(jax.random.key(0))
  x = jax.random.normal(keys[0], (2, rows, shape[0]))
  return x, 0.1 * jax.random.normal(keys[1], shape)


@pytest.mark.parametrize('dtype', ['float32', 'bfloat16'])
def test_a_stored_kernel_gives_the_same_product(dtype):
  x, kernel = arrays()
  kernel = kernel.astype(dtype)
  stored = kernels.store(kernel)
  assert stored.values.shape == (3, 5, 24)
  np.testing.assert_allclose(
    kernels.dense(x, stored), kernels.dense(x, kernel), atol=1e-6
  )


def test_int8_is_off_by_half_a_step_of_each_output_at_most():
  x, kernel = arrays()
  stored = kernels.store(kernel, bits=8)
  assert stored.values.dtype == jnp.int8
  restored = stored.values * stored.scale[..., None]
  steps = jnp.max(jnp.abs(kernel), axis=0) / 127
  error = jnp.abs(jnp.moveaxis(restored, -1, 0) - kernel)
  assert jnp.all(error <= 0.5001 * steps)
  exact = jnp.einsum('abk,nk->abn', x, restored.reshape(15, 24))
  # Rows are rounded to bfloat16, as by a bfloat16 kernel.
  np.testing.assert_allclose(kernels.dense(x, stored), exact, atol=2e-2)


def test_an_output_without_weights_stays_zero():
  stored = kernels.store(jnp.zeros((4, 2)), bits=8)
  assert not np.any(kernels.dense(jnp.ones((1, 4)), stored))


def test_other_bits_are_refused():
  with pytest.raises(ValueError, match=r'bits=4: expected 8'):
    kernels.store(jnp.zeros((4, 2)), bits=4)
