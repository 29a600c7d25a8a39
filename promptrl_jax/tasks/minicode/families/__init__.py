"""The families of the suite, one module per group of data types."""

import importlib
import pkgutil

from promptrl_jax.tasks.minicode.family import Family


def _collect() -> tuple[Family, ...]:
  """The families of every module of this package, in alphabetical order."""
  modules = sorted(m.name for m in pkgutil.iter_modules(__path__))
  return tuple(
    family
    for name in modules
    if name != 'draw'
    for family in importlib.import_module(f'{__name__}.{name}').FAMILIES
  )


ALL_FAMILIES = _collect()
