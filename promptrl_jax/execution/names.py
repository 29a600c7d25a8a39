"""Names that a test may use in the judge, and modules that workers import."""

from __future__ import annotations

import builtins
import functools
import importlib
import types
from typing import Any

# Modules that the judge offers to tests. A security list: what a test can reach
# through them must not harm the judge. They are also imported once per worker,
# before its programs, together with `_PRELOADED_ONLY`.
MODULES = frozenset(
  [
    *('bisect', 'cmath', 'collections', 'copy', 'datetime', 'decimal'),
    *('fractions', 'functools', 'heapq', 'itertools', 'json', 'math'),
    *('operator', 're', 'statistics', 'string', 'sys'),
  ]
)
# Modules that programs often import but tests in the judge must not use: what
# `random` and `time` return differs between the judge and the program, and
# `array` and `typing` make nothing that the codec carries.
_PRELOADED_ONLY = frozenset(['array', 'random', 'time', 'typing'])
# Modules that the zygote imports once instead of every program. Sorted, so that
# every worker imports them in the same order.
PRELOADED = tuple(sorted(MODULES | _PRELOADED_ONLY))
_OF_SYS = ('byteorder', 'float_info', 'getsizeof', 'maxsize', 'maxunicode')
_NOT_OFFERED = frozenset(
  [
    *('breakpoint', 'compile', 'copyright', 'credits', 'delattr', 'eval'),
    *('exec', 'exit', 'getattr', 'globals', 'help', 'input', 'license'),
    *('locals', 'open', 'quit', 'setattr', 'vars'),
  ]
)

# Attributes of plain data. The judge reads them itself, also on values that a
# program returned, because an object of the program could return anything.
PLAIN_ATTRIBUTES = frozenset(
  name
  for kind in (
    *(bool, int, float, complex, str, bytes, bytearray),
    *(list, tuple, dict, set, frozenset, range),
  )
  for name in dir(kind)
)


@functools.cache
def known() -> frozenset[str]:
  """Names of Python and of `MODULES`, whether the judge offers them or not."""
  return frozenset(offered()) | _NOT_OFFERED


@functools.cache
def offered() -> dict[str, Any]:
  """The builtins and modules that tests may use in the judge, by name."""
  names = {
    name: value
    for name, value in vars(builtins).items()
    if not name.startswith('_') and name not in _NOT_OFFERED
  }
  names['print'] = lambda *args, **kwargs: None
  return names | {name: _public(name) for name in MODULES}


@functools.cache
def judge_builtins() -> dict[str, Any]:
  """The `__builtins__` with which the judge runs a statement of a test."""
  return {**offered(), '__import__': lambda name, *_: offered()[name]}


def _public(name: str) -> types.SimpleNamespace:
  module = importlib.import_module(name)
  # Modules have other modules as attributes (`statistics.sys`): leave them out.
  return types.SimpleNamespace(
    **{
      key: value
      for key, value in vars(module).items()
      if not key.startswith('_')
      and not isinstance(value, types.ModuleType)
      and (name != 'sys' or key in _OF_SYS)
    }
  )
