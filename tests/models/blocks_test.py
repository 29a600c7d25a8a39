"""Kernels of 4 and 8 bits in blocks."""

import gguf
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from promptrl_jax.models import blocks, few_rows, gguf_blocks, kernels, native
from promptrl_jax.models.blocks import Blocks

compiled = pytest.mark.skipif(
  not native.is_available(), reason='needs a C++ compiler'
)
INPUTS, OUTPUTS = 96, 64


def parts(bits, with_mins=True, seed=0):
  """Random codes, with scales down to the smallest of float16."""
  rng = np.random.default_rng(seed)
  low, high = (0, 16) if bits == 4 else (-128, 128)
  codes = rng.integers(low, high, (INPUTS, OUTPUTS)).astype(np.int8)
  shape = INPUTS // blocks.BLOCK, OUTPUTS
  half = lambda x: x.astype(np.float16).astype(np.float32)
  scales = half(rng.normal(size=shape) * 10.0 ** rng.integers(-7, 1, shape))
  return Blocks(codes, scales, half(rng.normal(size=shape)) * with_mins)


def weights(found):
  """The kernel [in, out] of some parts, in float32."""
  codes = found.codes.reshape(-1, blocks.BLOCK, OUTPUTS)
  wide = codes * found.scales[:, None] + found.mins[:, None]
  return wide.reshape(INPUTS, OUTPUTS)


def rounded(x):
  """Rows whose blocks have 127 steps up to their largest number."""
  pieces = x.reshape(len(x), -1, blocks.BLOCK)
  factors = np.float32(127) / np.abs(pieces).max(axis=2, keepdims=True)
  steps = np.rint(pieces * factors).astype(np.float64)
  return (steps / factors).reshape(x.shape)


def pack(found, bits):
  """Packs some parts as a file's, without mins if all of them are 0."""
  mins = found.mins if found.mins.any() else np.zeros(0)
  return blocks.pack(found.replace(mins=mins), bits)


@compiled
@pytest.mark.parametrize('bits', [4, 8])
@pytest.mark.parametrize('with_mins', [True, False])
@pytest.mark.parametrize('rows', [1, 7, 40])
@pytest.mark.parametrize('threads', [1, 2])
def test_a_product_is_exact_but_for_float32_sums(
  bits, with_mins, rows, threads
):
  found = parts(bits, with_mins)
  packed = pack(found, bits)
  kernel = weights(found).astype(np.float64)
  x = jax.random.normal(jax.random.key(1), (rows, INPUTS))
  product = jax.jit(lambda x, p: blocks.product(x, p, threads))
  wide = rounded(np.asarray(x))
  limit = 1e-6 * (np.abs(wide) @ np.abs(kernel)).max()
  np.testing.assert_allclose(product(x, packed), wide @ kernel, atol=limit)
  # A row does not depend on those beside it.
  np.testing.assert_array_equal(product(x[:1], packed), product(x, packed)[:1])


@pytest.mark.parametrize('bits', [4, 8])
def test_rows_are_those_of_the_kernel(bits):
  found = parts(bits)
  outputs = jnp.array([[5, 63], [0, 31]])
  rows = jax.jit(blocks.rows)(pack(found, bits), outputs)
  np.testing.assert_allclose(rows, weights(found).T[outputs], rtol=1e-6)
  kernel = jax.random.normal(jax.random.key(0), (6, 64)).astype(jnp.bfloat16)
  rows = few_rows.rows(few_rows.pack(kernel), outputs)
  np.testing.assert_array_equal(rows, kernel.T[outputs])


def test_quantized_weights_are_off_by_half_a_step_at_most():
  kernel = np.random.default_rng(0).normal(size=(INPUTS, OUTPUTS))
  found = blocks.quantize(kernel)
  steps = np.abs(kernel).reshape(-1, blocks.BLOCK, OUTPUTS).max(axis=1) / 127
  rows = kernel.T.astype(np.float32)

  def read_parts(write):
    for start in range(0, OUTPUTS, 32):
      write(slice(start, start + 32), rows[start : start + 32])

  of_rows = gguf_blocks.of_weights(rows.shape, read_parts)
  error = np.abs(weights(jax.tree.map(lambda x: x.T, of_rows)) - kernel)
  limit = np.repeat(steps, blocks.BLOCK, axis=0)
  # The scale itself is rounded to float16.
  assert np.all(error <= 0.5001 * limit + 127 * limit * 2**-11)
  assert found.codes.max() == 127
  assert not blocks.quantize(np.zeros((32, 32))).codes.any()


@compiled
def test_eight_bits_are_packed_where_a_kernel_fits():
  kernel = np.random.default_rng(0).normal(size=(INPUTS, 4, OUTPUTS // 4))
  stored = kernels.store(kernel.astype(np.float32), bits=8, threads=1)
  assert isinstance(stored.values, blocks.PackedBlocks)
  x = jax.random.normal(jax.random.key(0), (3, INPUTS))
  exact = x @ kernel.reshape(INPUTS, OUTPUTS)
  error = np.abs(kernels.dense(x, stored) - exact)
  assert error.max() < 0.02 * np.abs(exact).max()


TYPES = ('Q4_0', 'Q4_1', 'Q5_0', 'Q5_1', 'Q8_0', 'Q4_K')


@pytest.mark.parametrize('kind', TYPES)
def test_parts_of_a_type_are_what_its_authors_dequantize(kind):
  number = gguf.GGMLQuantizationType[kind]
  weights_per_block, size = gguf.GGML_QUANT_SIZES[number]
  rng = np.random.default_rng(0)
  shape = 4, 512 // weights_per_block, size
  data = rng.integers(0, 256, shape).astype(np.uint8)
  halves = 2 if kind in ('Q4_1', 'Q5_1', 'Q4_K') else 1
  scales = rng.normal(scale=0.01, size=(*shape[:2], halves))
  data[..., : 2 * halves] = scales.astype(np.float16).view(np.uint8)
  data = data.reshape(4, -1)
  found = gguf_blocks.read(data, kind)
  wide = found.codes.reshape(4, -1, 32) * found.scales[..., None]
  wide += found.mins[..., None]
  expected = gguf.quants.dequantize(data, number)
  np.testing.assert_array_equal(wide.reshape(4, -1), expected)
  is_small = found.codes.min() >= 0 and found.codes.max() < 16
  assert is_small == kind.startswith('Q4')


def test_other_types_are_quantized_to_8_bits():
  assert gguf_blocks.read(np.zeros((2, 64), np.uint8), 'F16') is None
