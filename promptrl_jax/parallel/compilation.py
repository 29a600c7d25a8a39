"""Compiled programs are kept on disk, so that a second start need not wait."""

from __future__ import annotations

import os
import pathlib

import jax

_VARIABLE = 'PROMPTRL_COMPILATION_CACHE'
_MAX_BYTES = 2 * 2**30
_MIN_SECONDS = 0.5  # A program that compiles faster is not worth a file.


def cache_folder() -> pathlib.Path | None:
  """Where compiled programs are kept, made if need be.

  It is what the environment variable `PROMPTRL_COMPILATION_CACHE` says, or
  `~/.cache/promptrl_jax`; None if the variable is empty, or the folder cannot
  be made: a home that cannot be written to is no reason to stop.
  """
  folder = os.environ.get(
    _VARIABLE, os.path.expanduser('~/.cache/promptrl_jax')
  )
  if not folder:
    return None
  path = pathlib.Path(folder)
  try:
    path.mkdir(parents=True, exist_ok=True)
  except OSError:
    return None
  return path


def use_cache() -> None:
  """Keeps the programs that JAX compiles; call it before the first of them.

  A cache that JAX already has, for example from its own environment variable
  `JAX_COMPILATION_CACHE_DIR`, stays as it is.
  """
  if jax.config.values['jax_compilation_cache_dir']:
    return
  folder = cache_folder()
  if folder is None:
    return
  jax.config.update('jax_compilation_cache_dir', str(folder))
  jax.config.update('jax_persistent_cache_min_compile_time_secs', _MIN_SECONDS)
  jax.config.update('jax_compilation_cache_max_size', _MAX_BYTES)
