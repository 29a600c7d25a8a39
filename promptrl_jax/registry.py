"""Tables of plug-ins: what a name in a config stands for.

One table for each kind of plug-in. An entry of the package stands where the
table is made; `register` adds one from outside, in a module that
`--config.plugins` names.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Generic, TypeVar

Plugin = TypeVar('Plugin')


class Registry(Mapping[str, Plugin], Generic[Plugin]):
  """Plug-ins of one kind by name, in the order of registration."""

  def __init__(
    self, kind: str, check: Callable[[str, Plugin], None] | None = None
  ):
    """Makes an empty table.

    Args:
      kind: what an entry is called in errors: `operator`, say.
      check: raises TypeError or ValueError for an entry that cannot work.
    """
    self._kind = kind
    self._check = check
    self._plugins: dict[str, Plugin] = {}

  def register(self, name: str, plugin: Plugin) -> Plugin:
    """Adds an entry and returns it.

    Raises:
      ValueError: the name is no identifier, or it is taken.
      TypeError, ValueError: the entry is refused by the check of its kind.
    """
    if not isinstance(name, str) or not name.isidentifier():
      raise ValueError(
        f'{self._kind} {name!r}: expected a name of letters, digits and _'
      )
    if name in self._plugins:
      raise ValueError(f'{self._kind} {name!r} is registered already')
    if self._check is not None:
      self._check(name, plugin)
    self._plugins[name] = plugin
    return plugin

  def __getitem__(self, name: str) -> Plugin:
    """Returns an entry.

    Raises:
      ValueError: there is none of that name; lists the names there are.
    """
    if name not in self._plugins:
      raise ValueError(
        f'{self._kind} {name!r}: expected one of {", ".join(self._plugins)}'
      )
    return self._plugins[name]

  def __contains__(self, name: object) -> bool:
    return name in self._plugins

  def __iter__(self) -> Iterator[str]:
    return iter(self._plugins)

  def __len__(self) -> int:
    return len(self._plugins)


def check_call(label: str, function: Callable, *arguments: str) -> None:
  """Raises TypeError if a plug-in does not take these arguments by position."""
  try:
    inspect.signature(function).bind(*arguments)
  except TypeError as error:
    raise TypeError(
      f'{label} must take ({", ".join(arguments)}): {error}'
    ) from None


def import_plugins(modules: Iterable[str]) -> None:
  """Imports modules for what they register.

  Raises:
    ValueError: a module cannot be imported.
  """
  for module in modules:
    try:
      importlib.import_module(module)
    except ImportError as error:
      raise ValueError(
        f'plugins: {module!r} cannot be imported ({error}): expected a module '
        'on the Python path, my_package.my_plugin'
      ) from error
