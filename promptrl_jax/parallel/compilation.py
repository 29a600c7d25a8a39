"""Compiled programs are kept on disk, so that a second start need not wait."""

from __future__ import annotations

import os
import pathlib

import jax

_VARIABLE = 'PROMPTRL_COMPILATION_CACHE'
_MAX_BYTES = 2 * 2**30
_MIN_SECONDS = 0.5  # A program that compiles faster is not worth a file.


def use_cache(folder: str | os.PathLike[str] | None = None) -> None:
  """Keeps compiled programs in a folder; call before the first is compiled.

  Args:
    folder: where to; None: what the environment variable
      `PROMPTRL_COMPILATION_CACHE` says, or `~/.cache/promptrl_jax`. An empty
      text turns it off.
  """
  if folder is None:
    home = os.path.expanduser('~/.cache/promptrl_jax')
    folder = os.environ.get(_VARIABLE, home)
  if not str(folder):
    return
  path = pathlib.Path(folder)
  try:
    path.mkdir(parents=True, exist_ok=True)
  except OSError:  # A home that cannot be written to is no reason to stop.
    return
  jax.config.update('jax_compilation_cache_dir', str(path))
  jax.config.update('jax_persistent_cache_min_compile_time_secs', _MIN_SECONDS)
  jax.config.update('jax_compilation_cache_max_size', _MAX_BYTES)
