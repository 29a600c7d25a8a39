"""CPU products with a packed kernel, by `cpp/few_rows.cc`.

XLA's matrix library packs the kernel for every product, which takes longer than
the product itself in decoding. This module packs a kernel once into panels that
a product reads in order. For many rows it is as fast as the library (530
GFLOP/s on one core with bfloat16 factors, 250 with float32). Processors with
instructions for tiles (`cpp/tiles.h`) multiply bfloat16 by these.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from promptrl_jax.models import native
from promptrl_jax.parallel import host_memory

OUTPUTS = 32  # outputs per panel
_DTYPES = ('bfloat16', 'float32')


def fits(kernel: Any) -> bool:
  """Returns whether a kernel [in, out] can be packed."""
  return (
    jnp.dtype(kernel.dtype).name in _DTYPES
    and kernel.shape[0] % _depth(kernel) == 0
    and kernel.shape[1] % OUTPUTS == 0
  )


def _depth(kernel: Any) -> int:
  """Returns the number of inputs whose weights fill 4 bytes."""
  return 4 // jnp.dtype(kernel.dtype).itemsize


def pack(kernel: Any) -> Any:
  """Packs a kernel [in, out] into [out / 32, in / depth, 32, depth]."""
  depth = _depth(kernel)
  rows, outputs = kernel.shape
  split = kernel.reshape(rows // depth, depth, outputs // OUTPUTS, OUTPUTS)
  return split.transpose(2, 0, 3, 1)


def packed_shape(rows: Any) -> tuple[int, ...]:
  """Returns the shape of the panels of rows [out, in] that fit."""
  outputs, inputs = rows.shape
  depth = _depth(rows)
  return outputs // OUTPUTS, inputs // depth, OUTPUTS, depth


def unpack(panels: Any) -> Any:
  """Returns the kernel [out, in] of `panels`."""
  count, blocks, outputs, depth = panels.shape
  return panels.transpose(0, 2, 1, 3).reshape(count * outputs, blocks * depth)


def pack_rows(panels: np.ndarray, part: slice, kernel: np.ndarray) -> None:
  """Packs a part of a kernel's outputs, [out of the part, in], into `panels`.

  The part begins and ends with a panel.
  """
  place = panels[part.start // OUTPUTS : part.stop // OUTPUTS]
  place = place.transpose(0, 2, 1, 3)
  kernel = kernel.astype(panels.dtype, copy=False)
  host_memory.copy(place, kernel.reshape(place.shape))


def rows(panels: jax.Array, outputs: jax.Array) -> jax.Array:
  """The weights of some outputs [...]: [..., in]."""
  found = panels[outputs // OUTPUTS, :, outputs % OUTPUTS]
  return found.reshape(*outputs.shape, -1)


def product(x: jax.Array, panels: jax.Array, threads: int = 1) -> jax.Array:
  """Multiplies rows [rows, in] by a packed kernel; float32 [rows, out].

  Devices of this process that compute at the same time divide the `threads`, at
  most so many of XLA's. Rows are rounded to the dtype of the panels.
  """
  name = f'few_rows_{jnp.dtype(panels.dtype).name}'
  shape = len(x), panels.shape[0] * OUTPUTS
  return native.call(name, shape, threads, x.astype(jnp.float32), panels)
