"""A mapping that cannot be changed, for what immutable structs hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


class FrozenMapping(Mapping[str, Any]):
  """A copy of a mapping in its order; can be pickled, copied and compared."""

  __slots__ = ('_values',)

  def __init__(self, values: Mapping[str, Any] | None = None):
    self._values = dict(values or {})

  def __getitem__(self, key: str) -> Any:
    return self._values[key]

  def __iter__(self) -> Iterator[str]:
    return iter(self._values)

  def __len__(self) -> int:
    return len(self._values)

  def __hash__(self) -> int:
    return hash(frozenset(self._values.items()))

  def __repr__(self) -> str:
    return repr(self._values)
