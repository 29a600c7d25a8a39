"""Kernels of 4 or 8 bits, with a scale for each 32 inputs of an output.

A weight is scale * code + min, as in the types Q4_0 to Q8_0 of GGUF. A product
rounds each 32 numbers of a row to 8 bits, too, so that the largest becomes 127;
the integers' sum is exact, and scaled in float32 (`cpp/blocks.cc`). That is
half the multiplications of a product in bfloat16, and a third or half of the
bytes.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from promptrl_jax.models import native
from promptrl_jax.models.few_rows import OUTPUTS

BLOCK = 32  # inputs that share a scale
_AT_ONCE = 2**20  # weights that are quantized at a time


@struct.dataclass
class Blocks:
  """A quantized kernel [in, out] in parts, as a file has them.

  Attributes:
    codes: int8 [in, out]; those of 4 bits are from 0 to 15.
    scales, mins: float32 [in / 32, out].
  """

  codes: Any
  scales: Any
  mins: Any


@struct.dataclass
class PackedBlocks:
  """A quantized kernel in the order in which `cpp/blocks.cc` reads it.

  Attributes:
    codes: uint32 [out / 32, in / 32, bits, 32].
    scales: bits of float16 [out / 32, in / 32, 32].
    mins: likewise, or [0] if all are 0.
  """

  codes: Any
  scales: Any
  mins: Any

  @property
  def bits(self) -> int:
    return self.codes.shape[2]


@runtime_checkable
class Packable(Protocol):
  """A kernel [in, out] of which some outputs are read at a time.

  Attributes:
    bits: of a code, 4 or 8.
    has_mins: whether some minimum is not 0.
  """

  @property
  def shape(self) -> tuple[int, int]: ...

  @property
  def bits(self) -> int: ...

  @property
  def has_mins(self) -> bool: ...

  def read(self, outputs: slice) -> Blocks: ...


@dataclasses.dataclass(frozen=True, eq=False)
class _Rounded:
  """A kernel of NumPy that is quantized to 8 bits."""

  kernel: np.ndarray
  bits: int = 8
  has_mins: bool = False

  @property
  def shape(self) -> tuple[int, int]:
    inputs, outputs = self.kernel.shape
    return inputs, outputs

  def read(self, outputs: slice) -> Blocks:
    return quantize(self.kernel[:, outputs])


def fits(shape: tuple[int, ...]) -> bool:
  """Returns whether a kernel of the shape [in, out] can be packed."""
  return shape[0] % BLOCK == 0 and shape[1] % OUTPUTS == 0


def unfit(shape: tuple[int, ...]) -> ValueError:
  """Returns the error of a `Packable` that cannot be packed."""
  return ValueError(
    f'a kernel of {shape} as its file stores it: expected sizes that 32 '
    'divides, a CPU, a C++ compiler, and a mesh that splits no parameters; or '
    'load the model as bfloat16'
  )


def quantize(kernel: Any) -> Blocks:
  """Quantizes [in, out] to 8 bits: the largest of 32 weights becomes 127."""
  wide = kernel.astype(np.float32).reshape(-1, BLOCK, kernel.shape[1])
  scales = abs(wide).max(axis=1) / np.float32(127)
  # The scale that is stored divides, so that rounding it costs nothing.
  scales = scales.astype(np.float16).astype(np.float32)
  safe = scales + (scales == 0)
  codes = (wide / safe[:, None]).round().clip(-127, 127).astype(np.int8)
  mins = np.zeros(0, np.float32)
  return Blocks(codes.reshape(kernel.shape), scales, mins)


def quantized(kernel: Any) -> PackedBlocks:
  """Quantizes and packs a kernel [in, out] in 8 bits."""
  if not isinstance(kernel, np.ndarray):
    return pack(quantize(kernel), 8)
  return packed(_Rounded(kernel))


def packed(kernel: Packable) -> PackedBlocks:
  """Reads and packs a kernel, some outputs at a time.

  Their parts take a fraction of its memory, and stay in a cache.
  """
  inputs, outputs = kernel.shape
  panels, blocks = outputs // OUTPUTS, inputs // BLOCK
  codes = np.empty((panels, blocks, kernel.bits, OUTPUTS), np.uint32)
  scales = np.empty((panels, blocks, OUTPUTS), np.uint16)
  mins = np.empty_like(scales) if kernel.has_mins else np.zeros(0, np.uint16)
  step = max(1, _AT_ONCE // (inputs * OUTPUTS))
  for start in range(0, panels, step):
    stop = min(start + step, panels)
    some = kernel.read(slice(start * OUTPUTS, stop * OUTPUTS))
    part, place = pack(some, kernel.bits), slice(start, stop)
    codes[place], scales[place] = part.codes, part.scales
    if kernel.has_mins:
      mins[place] = part.mins
  return PackedBlocks(codes, scales, mins)


def pack(blocks: Blocks, bits: int) -> PackedBlocks:
  """Packs a kernel [in, out]; its mins may be [0].

  Scales and mins are rounded to float16, in which most types have them.
  """
  inputs, outputs = blocks.codes.shape
  panels = outputs // OUTPUTS
  shape = inputs // BLOCK, bits, 8 // bits, 4, panels, OUTPUTS
  pieces = blocks.codes.reshape(shape).transpose(4, 0, 1, 5, 2, 3)
  pieces = pieces.astype(np.uint8) ^ np.uint8(_offset(bits))
  codes = functools.reduce(
    operator.or_,
    (
      pieces[..., piece, byte].astype(np.uint32) << 8 * byte + bits * piece
      for piece in range(8 // bits)
      for byte in range(4)
    ),
  )

  def narrow(values: Any) -> Any:
    half = values.astype(np.float16).view(np.uint16)
    if half.ndim == 1:
      return half
    return half.reshape(-1, panels, OUTPUTS).swapaxes(0, 1)

  return PackedBlocks(
    codes,
    narrow(blocks.scales),
    narrow(blocks.mins),
  )


def rows(kernel: PackedBlocks, outputs: jax.Array) -> jax.Array:
  """The weights of some outputs [...], float32 [..., in]."""
  panel, place = outputs // OUTPUTS, outputs % OUTPUTS
  bits = kernel.bits
  words = kernel.codes[panel, :, :, place]
  shifts = np.arange(0, 8, bits)[:, None] + np.arange(0, 32, 8)
  codes = words[..., None, None] >> shifts.astype(np.uint32) & (2**bits - 1)
  codes = codes.astype(jnp.int32) - _offset(bits)
  codes = codes.reshape(*outputs.shape, -1, BLOCK)
  weights = codes * _wide(kernel.scales)[panel, :, place][..., None]
  if kernel.mins.size:
    weights += _wide(kernel.mins)[panel, :, place][..., None]
  return weights.reshape(*outputs.shape, -1)


def product(x: jax.Array, kernel: PackedBlocks, threads: int = 1) -> jax.Array:
  """Multiplies rows [rows, in] by a kernel; float32 [rows, out]."""
  shape = len(x), kernel.codes.shape[0] * OUTPUTS
  name = f'few_rows_{kernel.bits}_bits'
  parts = kernel.codes, kernel.scales, kernel.mins
  return native.call(name, shape, threads, x.astype(jnp.float32), *parts)


def _offset(bits: int) -> int:
  """What packed codes are increased by, so that none is negative."""
  return 128 if bits == 8 else 0


def _wide(half: jax.Array) -> jax.Array:
  values = jax.lax.bitcast_convert_type(half, jnp.float16)
  return values.astype(jnp.float32)
