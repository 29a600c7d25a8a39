"""Rates of this machine, from which benchmarks compute their floors."""

from __future__ import annotations

import concurrent.futures
import os
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from promptrl_jax.models import blocks, few_rows, native

_ROWS, _SIZE = 64, 1024  # of products of ours
# Rows and columns of a large product.
_LARGE_ON_CPU, _LARGE = 2048, 8192
_COPIED_MB = 4096  # of a copy in the memory of an accelerator


def seconds(fn, *args, repeats: int) -> float:
  """Returns the median wall time of a jitted call after one warm-up."""
  jax.block_until_ready(fn(*args))
  times = []
  for _ in range(repeats):
    start = time.perf_counter()
    jax.block_until_ready(fn(*args))
    times.append(time.perf_counter() - start)
  return float(np.median(times))


def matmul_rate(
  repeats: int, size: int | None = None, dtype: str = 'float32'
) -> float:
  """Returns the operations per second of a large matrix product.

  Its size is that which keeps this kind of device busy, if none is given.
  """
  if size is None:
    size = _LARGE_ON_CPU if jax.default_backend() == 'cpu' else _LARGE
  x = jnp.ones((size, size), dtype)
  return 2 * size**3 / seconds(jax.jit(lambda a: a @ a), x, repeats=repeats)


def product_rate(dtype: str, repeats: int) -> float:
  """Returns the operations per second of the fastest large product of a type.

  XLA's on all cores, or `few_rows` on one core, times the cores.
  """
  rate = matmul_rate(repeats, dtype=dtype)
  if not _has_kernels():
    return rate
  panels = few_rows.pack(jnp.ones((_SIZE, _SIZE), dtype))
  x = jnp.ones((_ROWS, _SIZE), dtype)
  product = lambda x: few_rows.product(x, panels, 1)
  return max(rate, _on_all_cores(product, x, repeats))


def packed_rate(bits: int, repeats: int) -> float:
  """Returns the operations per second of products with 4 or 8 bits; 0: none."""
  if not _has_kernels():
    return 0.0
  codes = jnp.ones((_SIZE, _SIZE), jnp.int8)
  scales = jnp.ones((_SIZE // blocks.BLOCK, _SIZE))
  kernel = blocks.pack(blocks.Blocks(codes, scales, jnp.zeros((0,))), bits)
  x = jnp.ones((_ROWS, _SIZE))
  return _on_all_cores(lambda x: blocks.product(x, kernel, 1), x, repeats)


def _has_kernels() -> bool:
  """Whether our products in C++ run here: those of a CPU do."""
  return jax.default_backend() == 'cpu' and native.is_available()


def _on_all_cores(product: Any, x: jax.Array, repeats: int) -> float:
  """Operations per second of a product on one core, times the cores."""
  taken = seconds(jax.jit(product), x, repeats=20 * repeats)
  cores = len(os.sched_getaffinity(0))
  return cores * 2 * x.size * _SIZE / taken


def copy_rate(runs: int, megabytes: int = 256) -> float:
  """Returns the bytes per second that one copying thread per core moves.

  Bytes read and bytes written both count.
  """
  cores = len(os.sched_getaffinity(0))
  pairs = [np.ones((2, megabytes * 2**17)) for _ in range(cores)]
  taken = []
  with concurrent.futures.ThreadPoolExecutor(cores) as threads:
    for _ in range(1 + runs):
      start = time.perf_counter()
      list(threads.map(lambda pair: np.copyto(pair[0], pair[1]), pairs))
      taken.append(time.perf_counter() - start)
  return cores * pairs[0].nbytes / float(np.median(taken[1:]))


def memory_rate(runs: int) -> float:
  """Returns the rate of copies in the memory that computations read."""
  if jax.default_backend() == 'cpu':
    return copy_rate(runs)
  return device_copy_rate(runs, _COPIED_MB)


def device_copy_rate(runs: int, megabytes: int) -> float:
  """Returns the bytes per second that one device reads and writes."""
  x = jnp.ones(megabytes * 2**18)
  return 2 * x.nbytes / seconds(jax.jit(lambda a: a + 1), x, repeats=runs)
