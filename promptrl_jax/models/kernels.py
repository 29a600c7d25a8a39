"""Products with kernels: as they are trained, or as a decoder stores them."""

from __future__ import annotations

import functools
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax import struct

from promptrl_jax.models import few_rows

_INT8_MAX = 127


@struct.dataclass
class StoredKernel:
  """A kernel [in, *out] with its outputs first.

  CPU products of a few rows are 10 to 50 % faster this way. They are bound by
  how fast the kernel is packed, which is faster along its rows.

  Attributes:
    values: [*out, in], floating point or int8; or the panels of
      `few_rows.pack`.
    scale: [*out] if `values` are int8: what each output is multiplied by.
    threads: how many share a product with panels; 0: they are no panels.
  """

  values: Any
  scale: Any = None
  threads: int = struct.field(pytree_node=False, default=0)


def store(
  kernel: Any, bits: int | None = None, threads: int = 0
) -> StoredKernel:
  """Lays out `kernel` [in, *out].

  Args:
    kernel: floating point.
    bits: None to keep its type; 8 to round each output's weights to int8, as a
      multiple of their largest magnitude over 127 (arXiv 2208.07339, section
      2.1, one scale per output).
    threads: to pack it for `few_rows` and so many, if it can be; 0: not to.

  Raises:
    ValueError: other `bits`.
  """
  flat = kernel.reshape(kernel.shape[0], -1)
  if threads and bits is None and few_rows.fits(flat):
    return StoredKernel(few_rows.pack(flat), threads=threads)
  values = kernel.transpose(*range(1, kernel.ndim), 0)
  if bits is None:
    return StoredKernel(values)
  if bits != 8:
    raise ValueError(f'bits={bits}: expected 8, or None to keep the type')
  values, scale = quantize(values)
  return StoredKernel(values, scale)


def quantize(values: jax.Array) -> tuple[jax.Array, jax.Array]:
  """int8 [..., N] and float32 scales [...] of `values` [..., N]."""
  wide = values.astype(jnp.float32)
  scale = jnp.max(jnp.abs(wide), axis=-1) / _INT8_MAX
  safe = jnp.where(scale > 0, scale, 1.0)[..., None]
  return jnp.round(wide / safe).astype(jnp.int8), scale


def dense(
  x: jax.Array, kernel: jax.Array | StoredKernel, dtype: Any = None
) -> jax.Array:
  """`x` [..., in] times a kernel [in, ...], flat: [..., out].

  The result has `dtype`, that of `x` if None.

  One 2-D product: with leading axes kept, the gradient of the kernel ran at
  half the rate on CPU. If either side is of 16 bits, the factors are rounded to
  it; the sum is float32. On CPU, float32 activations with bfloat16 kernels
  decode twice as fast as float32 kernels: half the bytes, twice the products.
  int8 kernels are exact in bfloat16, and scaled after the product.
  """
  rows = x.reshape(-1, x.shape[-1])
  if isinstance(kernel, StoredKernel):
    flat = _stored_product(rows, kernel)
    if kernel.scale is not None:
      flat *= kernel.scale.reshape(-1)
  else:
    flat = product(rows, kernel.reshape(x.shape[-1], -1), 0)
  return flat.astype(dtype or x.dtype).reshape(*x.shape[:-1], -1)


def _stored_product(x: jax.Array, kernel: StoredKernel) -> jax.Array:
  values = kernel.values
  if not kernel.threads:
    return product(x, values.reshape(-1, x.shape[-1]), 1)
  if len(x) <= few_rows.MOST_ROWS and x.dtype.itemsize >= values.dtype.itemsize:
    return few_rows.product(x.astype(values.dtype), values, kernel.threads)
  return product(x, few_rows.unpack(values), 1)


def product(x: jax.Array, kernel: jax.Array, contracted: int) -> jax.Array:
  """float32 [M, out]: [M, in] times the axis `contracted` of a 2-D kernel.

  The factors are rounded as `dense` says, those of the gradient likewise: a
  product of 16 bits takes about half the time of one of float32 on CPU.
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
  """The gradients of `product`, float32: of [M, in] and of the 2-D kernel.

  Args:
    d_out: [M, out], the gradient of the product.
    x, kernel, contracted: as they were multiplied.
  """
  narrow = min((x.dtype, kernel.dtype), key=lambda t: t.itemsize)
  d_out, x = d_out.astype(narrow), x.astype(narrow)
  d_x = _dot(d_out, kernel.astype(narrow), 1, 1 - contracted)
  factors = (x, d_out) if contracted == 0 else (d_out, x)
  return d_x, _dot(*factors, 0, 0)


def _dot(x: jax.Array, y: jax.Array, of_x: int, of_y: int) -> jax.Array:
  """float32 product of two matrices over the axes `of_x` and `of_y`."""
  return jax.lax.dot_general(
    x, y, (((of_x,), (of_y,)), ((), ())), preferred_element_type=jnp.float32
  )


def kernel_of(module: nn.Module, name: str, init: Any, shape: Any) -> Any:
  """A kernel as `prepare` stored it, or else the parameter."""
  if module.has_variable('stored', name):
    return module.get_variable('stored', name)
  return module.param(name, init, shape)


def adapted_dense(
  module: nn.Module, x: jax.Array, name: str, interleaved: bool = False
) -> jax.Array:
  """`dense` by the kernel `name` of a layer and, if it has one, its adapter.

  Args:
    module: the layer; `lora.attach` gives adapters to it.
    x: [..., in].
    name: of the kernel [in, ...].
    interleaved: of a kernel [in, parts, out], the parts of each output are to
      lie side by side.

  Returns:
    [..., out].
  """
  ordered = lambda k: jnp.swapaxes(k, 1, 2) if interleaved else k
  y = dense(x, ordered(getattr(module, name)))
  if module.has_variable('lora', name):
    adapter = module.get_variable('lora', name)
    y += dense(dense(x, adapter['a']), ordered(adapter['b']))
  return y
