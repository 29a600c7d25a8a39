"""Fixtures for tests of the compiled C++ functions."""

import pytest

from promptrl_jax.models import native


@pytest.fixture(scope='session')
def compiler():
  """The C++ compiler; skips the test if none is installed."""
  try:
    return native.find_compiler()
  except FileNotFoundError as error:
    pytest.skip(str(error))


@pytest.fixture
def functions(compiler):
  """Compiles the C++ functions."""
  assert native.is_available()
