"""Fixtures for tests of the compiled C++ functions."""

import shutil

import pytest

from promptrl_jax.models import native


@pytest.fixture
def compiler():
  """Skips the test if no C++ compiler is installed."""
  if not any(map(shutil.which, native.COMPILERS)):
    pytest.skip(f'none of {", ".join(native.COMPILERS)} is installed')


@pytest.fixture
def functions(compiler):
  """Compiles the C++ functions."""
  assert native.is_available()
