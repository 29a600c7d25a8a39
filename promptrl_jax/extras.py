"""Packages that are installed with an extra of this one, and only then."""

from __future__ import annotations

import importlib
import types


def require(module: str, extra: str, purpose: str) -> types.ModuleType:
  """Imports a package that only an extra of this one installs.

  Args:
    module: name of the package to import.
    extra: the extra, as `setup.py` names it.
    purpose: the part that needs the package, to begin the message with.

  Raises:
    ImportError: the package is not installed; the message names the extra and
      the command that installs it.
  """
  try:
    return importlib.import_module(module)
  except ImportError as error:
    raise ImportError(
      f"{purpose} needs the package {module}, which the extra '{extra}' "
      f"installs: pip install 'promptrl_jax[{extra}]'",
      name=module,
    ) from error
