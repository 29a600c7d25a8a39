"""Functions for decoding on CPU, compiled from C++ at their first use.

That takes a few seconds. The library is made for the processor of this machine
and kept beside compiled programs. Without a C++ compiler, or with the variable
`PROMPTRL_NATIVE=0`, there is none, and XLA does what it can.
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
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from promptrl_jax.files import write_atomically
from promptrl_jax.parallel import compilation

FOLDER = pathlib.Path(__file__).parent / 'cpp'
_FUNCTIONS = ('few_rows_bfloat16', 'few_rows_float32', 'attend')
_VARIABLE = 'PROMPTRL_NATIVE'
COMPILERS = ('c++', 'g++', 'clang++')
_FLAGS = ('-std=c++17', '-O3', '-march=native', '-w', '-fPIC', '-shared')
_TIMEOUT_S = 120
_LONGEST_MESSAGE = 2000


@functools.cache
def is_available() -> bool:
  """Whether there are the functions; compiles and registers them."""
  if os.environ.get(_VARIABLE) == '0':
    return False
  try:
    library = _load()
  except (OSError, subprocess.SubprocessError) as error:
    said = getattr(error, 'stderr', None) or b''
    logging.info(
      'decoding is left to XLA: %s %s',
      error,
      said.decode(errors='replace')[:_LONGEST_MESSAGE],
    )
    return False
  for name in _FUNCTIONS:
    handler = jax.ffi.pycapsule(getattr(library, name))
    jax.ffi.register_ffi_target(_target(name), handler, platform='cpu')
  return True


def call(
  name: str, shape: Sequence[int], threads: int, *args: jax.Array
) -> Any:
  """What one of the functions makes of `args`: float32 of the shape."""
  result = jax.ShapeDtypeStruct(tuple(shape), np.float32)
  function = jax.ffi.ffi_call(_target(name), result)
  return function(*args, threads=np.int64(threads))


def _target(name: str) -> str:
  return f'promptrl_{name}'


def _load() -> ctypes.CDLL:
  """The shared library, from the cache or compiled now.

  Raises:
    OSError: there is no compiler, or nowhere to write to.
    subprocess.SubprocessError: it failed.
  """
  compiler = next(filter(None, map(shutil.which, COMPILERS)), None)
  if compiler is None:
    raise FileNotFoundError(f'none of {", ".join(COMPILERS)} is installed')
  texts = [path.read_bytes() for path in sorted(FOLDER.iterdir())]
  made_of = (texts, _FLAGS, compiler, jax.__version__, _processor())
  name = hashlib.sha256(repr(made_of).encode()).hexdigest()[:16]
  with tempfile.TemporaryDirectory(prefix='promptrl_native_') as temporary:
    folder = compilation.cache_folder() or pathlib.Path(temporary)
    path = folder / f'native_{name}.so'
    if not path.exists():
      made = pathlib.Path(temporary) / 'made.so'
      _compile(compiler, made)
      write_atomically(path, made.read_bytes())
    return ctypes.CDLL(str(path))


def _compile(compiler: str, path: pathlib.Path) -> None:
  sources = map(str, sorted(FOLDER.glob('*.cc')))
  subprocess.run(
    [
      compiler,
      *_FLAGS,
      f'-I{jax.ffi.include_dir()}',
      *sources,
      '-o',
      str(path),
    ],
    check=True,
    capture_output=True,
    timeout=_TIMEOUT_S,
  )


def _processor() -> str:
  """Names what `-march=native` depends on."""
  try:
    lines = pathlib.Path('/proc/cpuinfo').read_text().splitlines()
  except OSError:
    return platform.processor()
  wanted = ('model name', 'flags', 'Features', 'CPU part')
  return ' '.join(sorted({s for s in lines if s.startswith(wanted)}))
