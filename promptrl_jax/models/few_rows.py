"""Products of a few rows with a kernel, on CPU, compiled from `few_rows.cc`.

The library of XLA packs a kernel anew for every product. In decoding that takes
longer than the product: here a kernel is packed once, and read in order.

The function is compiled at its first use, in a few seconds, for the processor
of this machine, and kept beside compiled programs. Without a C++ compiler, or
with the variable `PROMPTRL_FEW_ROWS=0`, there is none, and kernels stay as they
are.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import logging
import os
import pathlib
import platform
import shutil
import subprocess
import tempfile
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from promptrl_jax.parallel import compilation

OUTPUTS = 32  # of a panel
# With more rows, packing is a small part of a product of XLA.
MOST_ROWS = 128

_SOURCE = pathlib.Path(__file__).with_suffix('.cc')
_VARIABLE = 'PROMPTRL_FEW_ROWS'
_COMPILERS = ('c++', 'g++', 'clang++')
_FLAGS = ('-std=c++17', '-O3', '-march=native', '-w', '-fPIC', '-shared')
_DTYPES = ('bfloat16', 'float32')
_TIMEOUT_S = 120
_LONGEST_MESSAGE = 2000


@functools.cache
def is_available() -> bool:
  """Whether there is the function; compiles and registers it."""
  if os.environ.get(_VARIABLE) == '0':
    return False
  try:
    library = _load()
  except (OSError, subprocess.SubprocessError) as error:
    said = getattr(error, 'stderr', None) or b''
    logging.info(
      'products of a few rows are left to XLA: %s %s',
      error, said.decode(errors='replace')[:_LONGEST_MESSAGE],
    )  # fmt: skip
    return False
  for dtype in _DTYPES:
    handler = jax.ffi.pycapsule(getattr(library, f'few_rows_{dtype}'))
    jax.ffi.register_ffi_target(_target(dtype), handler, platform='cpu')
  return True


def _target(dtype: Any) -> str:
  return f'promptrl_few_rows_{jnp.dtype(dtype).name}'


def _load() -> ctypes.CDLL:
  """The shared library, from the cache or compiled now.

  Raises:
    OSError: there is no compiler, or nowhere to write to.
    subprocess.SubprocessError: it failed.
  """
  compiler = next(filter(None, map(shutil.which, _COMPILERS)), None)
  if compiler is None:
    raise FileNotFoundError(f'none of {", ".join(_COMPILERS)} is installed')
  made_of = (
    _SOURCE.read_bytes(), _FLAGS, compiler, jax.__version__, _processor()
  )  # fmt: skip
  name = hashlib.sha256(repr(made_of).encode()).hexdigest()[:16]
  folder = compilation.cache_folder()
  with tempfile.TemporaryDirectory(prefix='few_rows_') as temporary:
    path = pathlib.Path(folder or temporary) / f'few_rows_{name}.so'
    if not path.exists():
      _compile(compiler, path)
    return ctypes.CDLL(str(path))


def _compile(compiler: str, path: pathlib.Path) -> None:
  # Another process may be at it: whole files alone appear under the name.
  partial = path.with_suffix(f'.{os.getpid()}')
  command = [compiler, *_FLAGS, f'-I{jax.ffi.include_dir()}', str(_SOURCE)]
  try:
    subprocess.run(
      [*command, '-o', str(partial)],
      check=True, capture_output=True, timeout=_TIMEOUT_S,
    )  # fmt: skip
    partial.replace(path)
  finally:
    partial.unlink(missing_ok=True)


def _processor() -> str:
  """Names what `-march=native` depends on."""
  try:
    lines = pathlib.Path('/proc/cpuinfo').read_text().splitlines()
  except OSError:
    return platform.processor()
  wanted = ('model name', 'flags', 'Features', 'CPU part')
  return ' '.join(sorted({s for s in lines if s.startswith(wanted)}))


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
  shape = jax.ShapeDtypeStruct((len(x), panels.shape[0] * OUTPUTS), jnp.float32)
  call = jax.ffi.ffi_call(_target(panels.dtype), shape)
  return call(x, panels, threads=np.int64(threads))
