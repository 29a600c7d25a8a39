"""Keeps compiled programs on disk, so that later runs start faster."""

from __future__ import annotations

import os
import pathlib

import jax

_VARIABLE = 'PROMPTRL_COMPILATION_CACHE'
_MAX_BYTES = 2 * 2**30
_MIN_SECONDS = 0.5  # Programs that compile faster are not stored.


def cache_folder() -> pathlib.Path | None:
  """Returns the folder of the compilation cache and creates it if needed.

  It is that of the environment variable `PROMPTRL_COMPILATION_CACHE`, or else
  `~/.cache/promptrl_jax`; None if the variable is empty or the folder cannot be
  created, because a home folder that is read-only must not stop a run.
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
  """Enables JAX's compilation cache; call this before the first compilation.

  A cache that JAX already has, for example from its own environment variable
  `JAX_COMPILATION_CACHE_DIR`, stays as it is.
  """
  if jax.config.values.get('jax_compilation_cache_dir'):
    return
  folder = cache_folder()
  if folder is None:
    return
  jax.config.update('jax_compilation_cache_dir', str(folder))
  jax.config.update('jax_persistent_cache_min_compile_time_secs', _MIN_SECONDS)
  jax.config.update('jax_compilation_cache_max_size', _MAX_BYTES)
