"""Cases of a test of which some run every time, and all in `make test-slow`."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def mostly_slow(cases: Iterable[Any], often: Collection[Any]) -> list[Any]:
  """Parameters for all cases; those that are not among `often` are slow tests.

  A tuple holds several parameters.
  """
  return [
    pytest.param(
      *(case if isinstance(case, tuple) else (case,)),
      marks=() if case in often else pytest.mark.slow,
    )
    for case in cases
  ]
