"""Settings of every test: two simulated devices, a cache, and a pool."""

from __future__ import annotations

import contextlib
import gc
import os
import pathlib
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator

import hypothesis
import jax
import pytest

from promptrl_jax import files
from promptrl_jax.execution import ExecutionPool

jax.config.update('jax_num_cpu_devices', 2)
# How long an example takes says more of the machine than of the code.
hypothesis.settings.register_profile(
  'suite',
  deadline=None,
  suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile('suite')

_CACHE = 'JAX_COMPILATION_CACHE_DIR'
# So that programs that nobody compiles any more do not pile up.
_KEPT_DAYS = 14
_TESTS = pathlib.Path(__file__).parent
# Folders whose files take longest. They begin, so that none is left for the end
# when other workers have nothing to do.
_FIRST = ('experiments', 'training', 'parallel', 'tools', 'llm', 'models')


def pytest_configure(config: pytest.Config) -> None:
  """Workers, processes that tests start, and later runs share programs.

  Compiling is most of the work of a first run. The first process of a run names
  the folder in the environment, which all others inherit; a folder that the
  environment names already is used as it is.
  """
  if _CACHE not in os.environ:
    folder = _cache(config)
    os.environ[_CACHE] = folder
    os.environ['JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS'] = '0'
    # The functions in C++ are compiled once, too.
    os.environ['PROMPTRL_COMPILATION_CACHE'] = folder
  # JAX has read its environment before this function is called.
  jax.config.update('jax_compilation_cache_dir', os.environ[_CACHE])
  jax.config.update('jax_persistent_cache_min_compile_time_secs', 0.0)


def _cache(config: pytest.Config) -> str:
  """Returns a folder that is kept from run to run, or a new one without it."""
  kept = files.cache_folder()
  if kept is None:
    folder = tempfile.mkdtemp(prefix='jax_cache_')
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
    return folder
  kept /= 'tests'
  kept.mkdir(exist_ok=True)
  oldest = time.time() - _KEPT_DAYS * 86_400
  for path in kept.iterdir():
    with contextlib.suppress(FileNotFoundError):  # Another run may do the same.
      if path.stat().st_mtime < oldest:
        path.unlink()
  return str(kept)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
  """Puts the folders that take longest first."""

  def rank(item: pytest.Item) -> int:
    folder = item.path.relative_to(_TESTS).parts[0]
    return _FIRST.index(folder) if folder in _FIRST else len(_FIRST)

  items.sort(key=rank)


def pytest_collection_finish() -> None:
  """Collects garbage less often: modules are large, and programs are traced.

  A collection walks all that has been imported; without this, about 6 %
  of the time of tests that trace programs goes there.
  """
  gc.freeze()
  gc.set_threshold(100_000, 50, 100)


@pytest.fixture(scope='session')
def pool() -> Iterator[ExecutionPool]:
  """A real pool; its workers start with the first program."""
  with ExecutionPool(workers=2) as pool:
    yield pool


@pytest.fixture
def interruptible() -> Iterator[None]:
  """A shell starts jobs in the background with interrupts ignored."""
  before = signal.signal(signal.SIGINT, signal.default_int_handler)
  yield
  signal.signal(signal.SIGINT, before)
