"""Products of a few rows by the compiled C++ function."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from promptrl_jax.models import few_rows, kernels


def factors(rows, dtype, inputs=96, outputs=160):
  rng = np.random.default_rng(rows)
  draw = lambda *shape: jnp.asarray(rng.normal(size=shape), dtype)
  return draw(rows, inputs), draw(inputs, outputs)


@pytest.mark.usefixtures('functions')
@pytest.mark.parametrize('dtype', ['bfloat16', 'float32'])
@pytest.mark.parametrize('rows', [*range(1, 10), 33])
@pytest.mark.parametrize('threads', [1, 3])
@pytest.mark.parametrize('inputs', [90, 96])  # 96 fill tiles
def test_it_is_the_product(rows, dtype, threads, inputs):
  x, kernel = factors(rows, dtype, inputs)
  actual = jax.jit(few_rows.product, static_argnums=2)(
    x, few_rows.pack(kernel), threads
  )
  assert actual.dtype == jnp.float32
  expected = np.asarray(x, np.float64) @ np.asarray(kernel, np.float64)
  np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=2e-5)


@pytest.mark.usefixtures('functions')
@pytest.mark.parametrize('inputs', [50, 64])
def test_rows_are_rounded_to_the_nearest_bfloat16(inputs):
  ties = [1 + 2.0**-8, 1 + 3 * 2.0**-8, -1 - 2.0**-8, 1 + 2.0**-8 + 2.0**-20]
  special = [0.0, -0.0, 3.4e38, np.inf, -np.inf, np.nan, -np.nan, 1e-3]
  drawn = np.random.default_rng(0).normal(size=inputs - 12)
  x = jnp.asarray([[*ties, *special, *drawn]], jnp.float32)
  kernel = jnp.eye(x.shape[1], 64, dtype=jnp.bfloat16)
  for i in range(x.shape[1]):  # One at a time: 0 * inf is no number.
    one = jnp.where(jnp.arange(x.shape[1]) == i, x, 0.0)
    actual = few_rows.product(one, few_rows.pack(kernel))[0, i]
    rounded = x[0, i].astype(jnp.bfloat16).astype(jnp.float32)
    np.testing.assert_array_equal(actual, rounded)


@pytest.mark.usefixtures('functions')
@pytest.mark.parametrize('dtype', ['bfloat16', 'float32'])
@pytest.mark.parametrize('threads', [1, 2])
def test_shared_by_threads_it_stays_the_same(dtype, threads):
  # Large enough to be shared, and with a last part that is not full.
  x, kernel = factors(5, dtype, inputs=256, outputs=32 * 301)
  panels = few_rows.pack(kernel)
  alone = few_rows.product(x, panels)
  for _ in range(20):
    np.testing.assert_array_equal(few_rows.product(x, panels, threads), alone)
  expected = np.asarray(x, np.float64) @ np.asarray(kernel, np.float64)
  np.testing.assert_allclose(alone, expected, rtol=1e-5, atol=1e-4)


@pytest.mark.usefixtures('functions')
@pytest.mark.parametrize('dtype', ['bfloat16', 'float32'])
def test_a_row_does_not_depend_on_the_others(dtype):
  # More than are multiplied by all panels before the next ones, by tiles.
  x, kernel = factors(2800, dtype)
  panels = few_rows.pack(kernel)
  together = np.asarray(few_rows.product(x, panels))
  expected = np.asarray(x, np.float64) @ np.asarray(kernel, np.float64)
  np.testing.assert_allclose(together, expected, rtol=1e-5, atol=2e-5)
  for count in (*range(1, 11), 16, 17, 32, 40, 2750):
    actual = few_rows.product(x[:count], panels)
    np.testing.assert_array_equal(actual, together[:count])


@pytest.mark.parametrize('dtype', ['bfloat16', 'float32'])
def test_a_packed_kernel_can_be_unpacked(dtype):
  kernel = factors(1, dtype)[1]
  np.testing.assert_array_equal(
    few_rows.unpack(few_rows.pack(kernel)), kernel.T
  )


@pytest.mark.parametrize(
  ('shape', 'dtype', 'fits'),
  [
    ((6, 64), 'bfloat16', True),
    ((5, 64), 'bfloat16', False),
    ((5, 64), 'float32', True),
    ((6, 48), 'float32', False),
    ((8, 64), 'float16', False),
  ],
)
def test_which_kernels_can_be_packed(shape, dtype, fits):
  assert few_rows.fits(jnp.zeros(shape, dtype)) == fits
  stored = kernels.store(jnp.zeros(shape, dtype), threads=1)
  assert bool(stored.threads) == fits


@pytest.mark.usefixtures('functions')
@pytest.mark.parametrize('rows', [3, 130])
@pytest.mark.parametrize('dtype', ['bfloat16', 'float32'])
def test_a_layer_does_not_care_how_its_kernel_is_stored(rows, dtype):
  x, kernel = factors(rows, dtype)
  kernel = kernel.reshape(96, 5, 32)
  plain = kernels.dense(x.astype(jnp.float32), kernels.store(kernel))
  packed = kernels.store(kernel, threads=2)
  assert packed.threads == 2
  actual = jax.jit(kernels.dense)(x.astype(jnp.float32), packed)
  np.testing.assert_allclose(actual, plain, rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize('dtype', ['bfloat16', 'float32'])
def test_packed_in_parts_it_is_the_same(dtype):
  _, kernel = factors(1, dtype)
  kernel = np.asarray(kernel)
  expected = few_rows.pack(kernel)
  panels = np.zeros(few_rows.packed_shape(kernel.T), kernel.dtype)
  assert panels.shape == expected.shape
  for start, stop in ((64, 160), (0, 64)):
    rows = kernel.T[start:stop].astype(np.float32)
    few_rows.pack_rows(panels, slice(start, stop), rows)
  np.testing.assert_array_equal(panels, expected)
