"""Matrix products with kernels in the layout of training or of decoding."""

from __future__ import annotations

import functools
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax import struct

from promptrl_jax.models import blocks, few_rows

# Kernels of `Block` and `DecoderLayer`, and the projection on the vocabulary.
KERNELS = ('qkv', 'out', 'gate_up', 'down', 'lm_head')
KERNELS += ('cross_query', 'cross_kv', 'cross_out')
_INT8_MAX = 127


@struct.dataclass
class StoredKernel:
  """A kernel [in, *out] in the layout of decoding, with the outputs first.

  CPU products of a few rows are 10 to 50 % faster in this layout. Their time is
  bound by the packing of the kernel, which is faster along its rows.

  Attributes:
    values: [*out, in], floating point or int8; panels from `few_rows.pack`; or
      `PackedBlocks`.
    threads: most threads for a product with one of the latter two; 0: `values`
      are the first.
  """

  values: Any
  scale: Any = None
  threads: int = struct.field(pytree_node=False, default=0)


def store(
  kernel: Any, bits: int | None = None, threads: int = 0
) -> StoredKernel:
  """Converts a kernel to the layout of decoding.

  Args:
    kernel: [in, *out]; or a `blocks.Packable`, which keeps its bits.
    bits: None keeps the type; 8 quantizes to int8 with one scale per output,
      the largest magnitude of its weights over 127 (arXiv 2208.07339, section
      2.1), or, if the kernel is packed, one per output and 32 inputs.
    threads: most threads for `few_rows`. The kernel is packed if this is
      positive and the shape allows it.

  Raises:
    ValueError: the bits are unknown, or the `Packable` cannot be packed.
  """
  if isinstance(kernel, blocks.Packable):
    if not (threads and blocks.fits(kernel.shape)):
      raise blocks.unfit(kernel.shape)
    return StoredKernel(blocks.packed(kernel), threads=threads)
  flat = kernel.reshape(kernel.shape[0], -1)
  if threads and bits is None and few_rows.fits(flat):
    return StoredKernel(few_rows.pack(flat), threads=threads)
  if threads and bits == 8 and blocks.fits(flat.shape):
    return StoredKernel(blocks.quantized(flat), threads=threads)
  values = kernel.transpose(*range(1, kernel.ndim), 0)
  if bits is None:
    return StoredKernel(values)
  if bits != 8:
    raise ValueError(f'bits={bits}: expected 8, or None to keep the type')
  values, scale = quantize(values)
  return StoredKernel(values, scale)


def quantize(values: jax.Array) -> tuple[jax.Array, jax.Array]:
  """Quantizes over the last axis; returns int8 [..., n] and scales [...]."""
  wide = values.astype(jnp.float32)
  scale = jnp.max(jnp.abs(wide), axis=-1) / _INT8_MAX
  safe = jnp.where(scale > 0, scale, 1.0)[..., None]
  return jnp.round(wide / safe).astype(jnp.int8), scale


def dense(
  x: jax.Array, kernel: jax.Array | StoredKernel, dtype: Any = None
) -> jax.Array:
  """Multiplies `x` [..., in] by a kernel [in, *out], whose outputs it flattens.

  The product is two-dimensional, because with leading axes the gradient of the
  kernel ran at half the speed on CPU. If either factor has 16 bits, both are
  rounded to that type; the accumulation is float32. On CPU, decoding with
  float32 activations is twice as fast with bfloat16 kernels as with float32
  kernels. int8 kernels are exact in bfloat16 and scaled after the product. The
  result has the type `dtype`; None: that of `x`.
  """
  rows = x.reshape(-1, x.shape[-1])
  if isinstance(kernel, StoredKernel):
    flat = _stored_product(rows, kernel)
    if kernel.scale is not None:
      flat *= kernel.scale.reshape(-1)
  else:
    flat = product(rows, kernel.reshape(x.shape[-1], -1), 0)
  return flat.astype(dtype or x.dtype).reshape(*x.shape[:-1], -1)


def threads_of(kernel: Any) -> int:
  """The most threads of a stored kernel; 0 of any other."""
  return kernel.threads if isinstance(kernel, StoredKernel) else 0


def rows_of(kernel: jax.Array | StoredKernel, outputs: jax.Array) -> jax.Array:
  """The weights [..., in] of some outputs of a kernel, or rows [out, in].

  XLA's CPU compiler gathers from 16-bit arrays as from float32, and widens the
  whole array in front of a loop that gathers from it: 670 MB for each device
  and call of the embedding of Gemma 3. What passes a barrier stays in the loop.
  """
  kernel, outputs = jax.lax.optimization_barrier((kernel, outputs))
  if not isinstance(kernel, StoredKernel):
    return kernel[outputs]
  if isinstance(kernel.values, blocks.PackedBlocks):
    return blocks.rows(kernel.values, outputs)
  return few_rows.rows(kernel.values, outputs)


def _stored_product(x: jax.Array, kernel: StoredKernel) -> jax.Array:
  values = kernel.values
  if isinstance(values, blocks.PackedBlocks):
    return blocks.product(x, values, kernel.threads)
  if not kernel.threads:
    return product(x, values.reshape(-1, x.shape[-1]), 1)
  if x.dtype.itemsize >= values.dtype.itemsize:
    return few_rows.product(x, values, kernel.threads)
  return product(x, few_rows.unpack(values), 1)


def product(x: jax.Array, kernel: jax.Array, contracted: int) -> jax.Array:
  """Contracts `x` [rows, in] with an axis of a kernel; float32 [rows, out].

  The factors are rounded as in `dense`, also in the gradient: on CPU a product
  of 16-bit factors takes about half the time of one of float32 factors.
  """
  stored = jnp.bfloat16 if kernel.dtype == jnp.int8 else kernel.dtype
  narrow = min((x.dtype, jnp.dtype(stored)), key=lambda t: t.itemsize)
  return _product(contracted, x.astype(narrow), kernel.astype(narrow))


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _product(contracted: int, x: jax.Array, kernel: jax.Array) -> jax.Array:
  return _dot(x, kernel, 1, contracted)


def _product_forward(contracted, x, kernel):
  return _product(contracted, x, kernel), (x, kernel)


def _product_backward(contracted, saved, d_out):
  x, kernel = saved
  d_x, d_kernel = transposed_products(d_out, x, kernel, contracted)
  return d_x.astype(x.dtype), d_kernel.astype(kernel.dtype)


_product.defvjp(_product_forward, _product_backward)


def transposed_products(
  d_out: jax.Array, x: jax.Array, kernel: jax.Array, contracted: int
) -> tuple[jax.Array, jax.Array]:
  """Computes the float32 gradients of `product` for `x` and `kernel`."""
  narrow = min((x.dtype, kernel.dtype), key=lambda t: t.itemsize)
  d_out, x = d_out.astype(narrow), x.astype(narrow)
  d_x = _dot(d_out, kernel.astype(narrow), 1, 1 - contracted)
  factors = (x, d_out) if contracted == 0 else (d_out, x)
  return d_x, _dot(*factors, 0, 0)


def _dot(x: jax.Array, y: jax.Array, x_axis: int, y_axis: int) -> jax.Array:
  """Contracts axis `x_axis` of `x` with axis `y_axis` of `y`, in float32."""
  return jax.lax.dot_general(
    x, y, (((x_axis,), (y_axis,)), ((), ())), preferred_element_type=jnp.float32
  )


def kernel_of(module: nn.Module, name: str, init: Any, shape: Any) -> Any:
  """Returns the module's stored kernel if it has one, else its parameter."""
  if module.has_variable('stored', name):
    return module.get_variable('stored', name)
  return module.param(name, init, shape)


def adapted_dense(
  module: nn.Module, x: jax.Array, name: str, interleaved: bool = False
) -> jax.Array:
  """Applies `dense` with a kernel of a layer and, if present, its adapter.

  For a kernel [in, parts, out], an `interleaved` result is ordered as
  [out, parts] instead of [parts, out]. `lora.attach` adds adapters.
  """

  def ordered(kernel):
    return jnp.swapaxes(kernel, 1, 2) if interleaved else kernel

  y = dense(x, ordered(getattr(module, name)))
  if module.has_variable('lora', name):
    adapter = module.get_variable('lora', name)
    y += dense(dense(x, adapter['a']), ordered(adapter['b']))
  return y
