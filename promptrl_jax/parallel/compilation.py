"""Keeps compiled programs on disk, so that later runs start faster."""

from __future__ import annotations

import jax

from promptrl_jax import files

_MAX_BYTES = 2 * 2**30
MIN_SECONDS = 0.5  # Programs that compile faster are not stored.


def use_cache() -> None:
  """Enables JAX's compilation cache; call this before the first compilation.

  A cache that JAX already has, for example from its own environment variable
  `JAX_COMPILATION_CACHE_DIR`, stays as it is.
  """
  if jax.config.values.get('jax_compilation_cache_dir'):
    return
  folder = files.cache_folder()
  if folder is None:
    return
  jax.config.update('jax_compilation_cache_dir', str(folder))
  jax.config.update('jax_persistent_cache_min_compile_time_secs', MIN_SECONDS)
  jax.config.update('jax_compilation_cache_max_size', _MAX_BYTES)
