"""What tests of the compiled functions need."""

import shutil

import pytest

from promptrl_jax.models import native


@pytest.fixture
def compiler():
  """Skips where there is none."""
  if not any(map(shutil.which, native.COMPILERS)):
    pytest.skip(f'none of {", ".join(native.COMPILERS)} is installed')


@pytest.fixture
def functions(compiler):
  """The compiled functions are there."""
  assert native.is_available()
