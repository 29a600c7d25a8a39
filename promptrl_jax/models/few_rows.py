"""Products of a few rows with a kernel, on CPU, by `cpp/few_rows.cc`.

The library of XLA packs a kernel anew for every product. In decoding that takes
longer than the product: here a kernel is packed once, and read in order.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from promptrl_jax.models import native

OUTPUTS = 32  # of a panel
# With more rows, packing is a small part of a product of XLA.
MOST_ROWS = 128
_DTYPES = ('bfloat16', 'float32')


def fits(kernel: Any) -> bool:
  """Whether a kernel [in, out] can be packed."""
  return (
    jnp.dtype(kernel.dtype).name in _DTYPES
    and kernel.shape[0] % _depth(kernel) == 0
    and kernel.shape[1] % OUTPUTS == 0
  )


def _depth(kernel: Any) -> int:
  return 4 // jnp.dtype(kernel.dtype).itemsize


def pack(kernel: Any) -> Any:
  """Panels [out / 32, in / D, 32, D] of a kernel [in, out]; D fill 4 bytes."""
  depth = _depth(kernel)
  rows, outputs = kernel.shape
  split = kernel.reshape(rows // depth, depth, outputs // OUTPUTS, OUTPUTS)
  return split.transpose(2, 0, 3, 1)


def unpack(panels: Any) -> Any:
  """The kernel [out, in]."""
  count, blocks, outputs, depth = panels.shape
  return panels.transpose(0, 2, 1, 3).reshape(count * outputs, blocks * depth)


def product(x: jax.Array, panels: jax.Array, threads: int = 1) -> jax.Array:
  """float32 [M, out]: `x` [M, in], of the dtype of the panels, times them.

  Args:
    x: rows.
    panels: from `pack`.
    threads: how many of XLA's share it; more than one only where no other
      device of this process is at work.
  """
  name = f'few_rows_{jnp.dtype(panels.dtype).name}'
  shape = len(x), panels.shape[0] * OUTPUTS
  return native.call(name, shape, threads, x, panels)
