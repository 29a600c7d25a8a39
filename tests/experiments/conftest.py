"""Processes started by these tests share what they compile."""

import pytest


@pytest.fixture(autouse=True, scope='session')
def compilation_cache(tmp_path_factory):
  cache = str(tmp_path_factory.mktemp('jax'))
  with pytest.MonkeyPatch.context() as patch:
    patch.setenv('JAX_COMPILATION_CACHE_DIR', cache)
    patch.setenv('JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS', '0.2')
    yield
