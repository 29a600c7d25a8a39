"""C++ functions for decoding on CPU, compiled at their first use.

Compilation takes 20 seconds of processor time, shared out over the cores, and
targets the processor of this machine. The library is stored in the folder of
the compilation cache; of processes that start at once, one compiles. Without a
C++ compiler or with the environment variable `PROMPTRL_NATIVE=0`, XLA computes
everything.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
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
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from promptrl_jax.files import cache_folder, held, write_atomically

FOLDER = pathlib.Path(__file__).parent / 'cpp'
_FUNCTIONS = ('few_rows_bfloat16', 'few_rows_float32')
_FUNCTIONS += ('few_rows_4_bits', 'few_rows_8_bits')
# By the dtype of a cache, which holds bits of bfloat16.
CACHES = {'float32': 'attend_float32', 'uint16': 'attend_bfloat16'}
_FUNCTIONS += (*CACHES.values(), 'attend_prompts')
_FUNCTIONS += ('rms_norm', 'draw')
LANES = 16  # The functions take whole vectors, of so many numbers at most.
_VARIABLE = 'PROMPTRL_NATIVE'
_COMPILERS = ('c++', 'g++', 'clang++')
_FLAGS = ('-std=c++17', '-O3', '-march=native', '-w', '-fPIC')
_TIMEOUT_S = 120
_LONGEST_MESSAGE = 2000


@functools.cache
def is_available() -> bool:
  """Compiles and registers the functions; returns whether that worked."""
  if os.environ.get(_VARIABLE) == '0':
    return False
  try:
    library = _load()
  except (OSError, subprocess.SubprocessError) as error:
    stderr = getattr(error, 'stderr', None) or b''
    logging.info(
      'decoding is left to XLA: %s %s',
      error,
      stderr.decode(errors='replace')[:_LONGEST_MESSAGE],
    )
    return False
  for name in _FUNCTIONS:
    handler = jax.ffi.pycapsule(getattr(library, name))
    jax.ffi.register_ffi_target(_target(name), handler, platform='cpu')
  return True


def find_compiler() -> str:
  """Returns the path of the C++ compiler.

  Raises:
    FileNotFoundError: none is installed.
  """
  found = next(filter(None, map(shutil.which, _COMPILERS)), None)
  if found is None:
    raise FileNotFoundError(f'none of {", ".join(_COMPILERS)} is installed')
  return found


def fits(size: int, dtype: Any) -> bool:
  """Whether attention and norm take rows of so many numbers of a type."""
  return size % LANES == 0 and jnp.dtype(dtype) == jnp.float32


def call(
  name: str,
  shape: Sequence[int],
  threads: int,
  *args: jax.Array,
  **attributes: Any,
) -> Any:
  """Calls a C++ function inside of a jitted one; returns float32 of `shape`.

  It may use at most `threads` of XLA's threads, which devices of this process
  that are at work divide (`cpp/devices.h`); `attributes` are further settings.
  """
  result = jax.ShapeDtypeStruct(tuple(shape), np.float32)
  return _call(name, result, threads, *args, **attributes)


def attend(
  qkv: jax.Array,
  cos: jax.Array,
  sin: jax.Array,
  slot: jax.Array,
  keys: jax.Array,
  values: jax.Array,
  mask: jax.Array,
  scale: float,
  threads: int,
) -> tuple[jax.Array, jax.Array, jax.Array]:
  """Writes a token to a cache and attends to it; see `cpp/attend.cc`.

  Returns:
    The attention [B, K, U, H], and `keys` and `values`, updated in place where
    the program does not need the old ones.
  """
  rows, heads, parts, size = qkv.shape
  results = [
    jax.ShapeDtypeStruct((rows, heads, parts - 2, size), qkv.dtype),
    *(jax.ShapeDtypeStruct(x.shape, x.dtype) for x in (keys, values)),
  ]
  return tuple(
    _call(
      CACHES[keys.dtype.name],
      results,
      threads,
      *(qkv, cos, sin, slot, keys, values, mask),
      aliases={4: 1, 5: 2},
      scale=np.float32(scale),
    )
  )


def draw(
  logits: jax.Array, temperature: jax.Array, uniform: jax.Array
) -> tuple[jax.Array, jax.Array]:
  """Tokens [B] and their log-probs, from `logits` [B, V]; see `cpp/draw.cc`."""
  rows = (len(logits),)
  results = [
    jax.ShapeDtypeStruct(rows, dtype) for dtype in (np.int32, np.float32)
  ]
  return tuple(_call('draw', results, 1, logits, temperature, uniform))


def _call(
  name: str,
  results: Any,
  threads: int,
  *args: jax.Array,
  aliases: dict[int, int] | None = None,
  **attributes: Any,
) -> Any:
  function = jax.ffi.ffi_call(
    _target(name), results, input_output_aliases=aliases
  )
  return function(*args, threads=np.int64(threads), **attributes)


def _target(name: str) -> str:
  return f'promptrl_{name}'


def _load() -> ctypes.CDLL:
  """Loads the shared library, and compiles it if the cache lacks it."""
  compiler = find_compiler()
  sources = [path.read_bytes() for path in sorted(FOLDER.iterdir())]
  inputs = (sources, _FLAGS, compiler, jax.__version__, _processor())
  name = hashlib.sha256(repr(inputs).encode()).hexdigest()[:16]
  with (
    tempfile.TemporaryDirectory(prefix='promptrl_native_') as temporary,
    contextlib.ExitStack() as stack,
  ):
    folder = cache_folder() or pathlib.Path(temporary)
    path = folder / f'native_{name}.so'
    if not path.exists():
      # Others wait for the one that compiles, unless that takes far too long.
      with contextlib.suppress(ValueError):
        stack.enter_context(held(folder, _TIMEOUT_S))
    if not path.exists():
      compiled = _compile(compiler, pathlib.Path(temporary))
      write_atomically(path, compiled.read_bytes())
    return ctypes.CDLL(str(path))


def _compile(compiler: str, folder: pathlib.Path) -> pathlib.Path:
  """Compiles the sources on all cores; returns the shared library."""

  def run(*arguments: Any) -> None:
    command = [compiler, *_FLAGS, *map(str, arguments)]
    subprocess.run(command, check=True, capture_output=True, timeout=_TIMEOUT_S)

  def compile_unit(unit: list[pathlib.Path]) -> pathlib.Path:
    source = folder / f'{unit[0].stem}.cc'
    source.write_text(''.join(f'#include "{path}"\n' for path in unit))
    compiled = source.with_suffix('.o')
    run(f'-I{jax.ffi.include_dir()}', '-c', source, '-o', compiled)
    return compiled

  # XLA's header takes three seconds, more than most files that need it. So
  # there is a unit for a core rather than for a file: the longest files first,
  # each to the unit that has the least.
  size = lambda path: path.stat().st_size
  sources = sorted(FOLDER.glob('*.cc'), key=size, reverse=True)
  cores = min(os.cpu_count() or 1, len(sources))
  units: list[list[pathlib.Path]] = [[] for _ in range(cores)]
  for source in sources:
    min(units, key=lambda unit: sum(map(size, unit))).append(source)
  with concurrent.futures.ThreadPoolExecutor(cores) as pool:
    compiled = list(pool.map(compile_unit, units))
  library = folder / 'compiled.so'
  run('-shared', *compiled, '-o', library)
  return library


def _processor() -> str:
  """Returns the processor's model and features, for `-march=native`."""
  try:
    lines = pathlib.Path('/proc/cpuinfo').read_text().splitlines()
  except OSError:
    return platform.processor()
  fields = ('model name', 'flags', 'Features', 'CPU part')
  return ' '.join(sorted({s for s in lines if s.startswith(fields)}))
