"""The names that `from promptrl_jax import rl` offers."""

from __future__ import annotations

import importlib
import inspect
import pkgutil

from promptrl_jax import rl

MODULES = {
  name: importlib.import_module(f'promptrl_jax.rl.{name}')
  for _, name, _ in pkgutil.iter_modules(rl.__path__)
}


def functions_of(module):
  """Names of the public functions that a module defines."""
  return {
    name
    for name, value in inspect.getmembers(module, inspect.isfunction)
    if value.__module__ == module.__name__ and not name.startswith('_')
  }


def test_every_public_function_is_an_attribute_of_the_package():
  for name, module in MODULES.items():
    if not hasattr(module, 'initial'):
      assert functions_of(module) <= set(vars(rl)), name


def test_no_function_hides_a_module():
  for name, module in MODULES.items():
    assert getattr(rl, name) is module
