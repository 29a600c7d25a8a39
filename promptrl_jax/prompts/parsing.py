"""Python's parser without the warnings that strange escapes lead to."""

from __future__ import annotations

import ast
import warnings
from typing import Any

_ERRORS = (SyntaxError, ValueError, RecursionError, MemoryError)


def parse(source: str, mode: str = 'exec') -> Any:
  """Returns the syntax tree; raises what `ast.parse` does."""
  with warnings.catch_warnings():
    warnings.simplefilter('ignore')
    return ast.parse(source, mode=mode)


def parse_or_none(source: str, mode: str = 'exec') -> Any:
  """Returns the syntax tree, or None for what is not Python."""
  try:
    return parse(source, mode)
  except _ERRORS:
    return None
