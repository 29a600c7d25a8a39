"""Kernels of 4 or 8 bits, with a scale for each 32 inputs of an output.

A weight is scale * code + min, as in the types Q4_0 to Q8_0 of GGUF. A product
unpacks it to bfloat16, so that the result is that of a bfloat16 kernel, while a
decode step reads a third or half of the bytes. `cpp/few_rows.cc` unpacks and
multiplies a panel of outputs at a time.
"""

from __future__ import annotations

import functools
import operator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from promptrl_jax.models import native
from promptrl_jax.models.few_rows import OUTPUTS

BLOCK = 32  # inputs that share a scale
_WORD = 32  # bits


@struct.dataclass
class Blocks:
  """A quantized kernel [in, *out] in parts, as a file has them.

  Attributes:
    codes: int8 [in, *out]; those of 4 bits are from 0 to 15.
    scales, mins: float32 [in / 32, *out].
  """

  codes: Any
  scales: Any
  mins: Any

  def flat(self) -> Blocks:
    """Returns the parts with one axis of outputs."""
    return jax.tree.map(lambda x: x.reshape(len(x), -1), self)


@struct.dataclass
class PackedBlocks:
  """A quantized kernel in the order in which `cpp/few_rows.cc` reads it.

  Attributes:
    codes: uint32 [out / 32, in / 32, bits / 2, 64].
    scales: bits of float16 [out / 32, in / 32, 32].
    mins: likewise, or [0] if all are 0.
  """

  codes: Any
  scales: Any
  mins: Any

  @property
  def bits(self) -> int:
    return 2 * self.codes.shape[2]


def fits(shape: tuple[int, ...]) -> bool:
  """Returns whether a kernel of the shape [in, out] can be packed."""
  return shape[0] % BLOCK == 0 and shape[1] % OUTPUTS == 0


def quantize(kernel: Any) -> Blocks:
  """Quantizes [in, out] to 8 bits: the largest of 32 weights becomes 127."""
  wide = jnp.asarray(kernel, jnp.float32).reshape(-1, BLOCK, kernel.shape[1])
  scales = jnp.max(jnp.abs(wide), axis=1) / 127
  # The scale that is stored divides, so that rounding it costs nothing.
  scales = scales.astype(jnp.float16).astype(jnp.float32)
  safe = jnp.where(scales > 0, scales, 1.0)[:, None]
  codes = jnp.clip(jnp.round(wide / safe), -127, 127).astype(jnp.int8)
  return Blocks(codes.reshape(kernel.shape), scales, jnp.zeros((0,)))


def stored(blocks: Blocks) -> PackedBlocks:
  """Packs what a file stores, in 4 bits if all codes are from 0 to 15."""
  is_small = blocks.codes.min() >= 0 and blocks.codes.max() < 16
  if not blocks.mins.any():
    blocks = Blocks(blocks.codes, blocks.scales, np.zeros(0))
  return pack(blocks, 4 if is_small else 8)


def pack(blocks: Blocks, bits: int) -> PackedBlocks:
  """Packs a kernel [in, out]; its mins may be [0].

  Scales and mins are rounded to float16, in which most types have them.
  """
  inputs, outputs = blocks.codes.shape
  panels, count = outputs // OUTPUTS, _WORD // bits  # codes of a word
  # [block, word, piece, parity, panel, output]
  pieces = blocks.codes.reshape(
    inputs // BLOCK, bits // 2, count, 2, panels, OUTPUTS
  )
  pieces = pieces.transpose(4, 0, 1, 5, 3, 2).astype(np.uint8)
  codes = functools.reduce(
    operator.or_,
    (
      (pieces[..., i] & (2**bits - 1)).astype(np.uint32) << bits * i
      for i in range(count)
    ),
  )

  def narrow(values: Any) -> Any:
    half = values.astype(np.float16).view(np.uint16)
    if half.ndim == 1:
      return half
    return half.reshape(-1, panels, OUTPUTS).swapaxes(0, 1)

  return PackedBlocks(
    codes.reshape(*codes.shape[:3], 2 * OUTPUTS),
    narrow(blocks.scales),
    narrow(blocks.mins),
  )


def rows(kernel: PackedBlocks, outputs: jax.Array) -> jax.Array:
  """The weights of some outputs [...], bfloat16 [..., in]."""
  panel, place = outputs // OUTPUTS, outputs % OUTPUTS
  shape = kernel.codes.shape
  words = kernel.codes.reshape(*shape[:3], OUTPUTS, 2)[panel, :, :, place]
  bits = kernel.bits
  shifts = jnp.arange(0, _WORD, bits, dtype=jnp.uint32)
  pieces = words[..., None] >> shifts
  if bits == 4:
    codes = (pieces & 15).astype(jnp.int32)
  else:
    codes = (pieces & 255).astype(jnp.int8).astype(jnp.int32)
  # [..., block, word, parity, piece] -> [..., block, input]
  codes = jnp.swapaxes(codes, -1, -2).reshape(*outputs.shape, shape[1], BLOCK)
  weights = codes * _wide(kernel.scales)[panel, :, place][..., None]
  if kernel.mins.size:
    weights += _wide(kernel.mins)[panel, :, place][..., None]
  return weights.astype(jnp.bfloat16).reshape(*outputs.shape, -1)


def product(x: jax.Array, kernel: PackedBlocks, threads: int = 1) -> jax.Array:
  """Multiplies bfloat16 rows [rows, in] by a kernel; float32 [rows, out]."""
  shape = len(x), kernel.codes.shape[0] * OUTPUTS
  name = f'few_rows_{kernel.bits}_bits'
  parts = kernel.codes, kernel.scales, kernel.mins
  return native.call(name, shape, threads, x, *parts)


def _wide(half: jax.Array) -> jax.Array:
  values = jax.lax.bitcast_convert_type(half, jnp.float16)
  return values.astype(jnp.float32)
