"""Settings as frozen dataclasses, and as plain data for files.

A dataclass holds the fields, their defaults and their documentation; a config
file states deviations. `from_mapping(type(s), to_mapping(s)) == s` for every
instance `s`, also after a trip through JSON.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

Settings = TypeVar('Settings')


def to_mapping(settings: Any) -> dict[str, Any]:
  """The fields of a dataclass as plain data; nested dataclasses are dicts."""
  return {
    field.name: _to_plain(getattr(settings, field.name))
    for field in dataclasses.fields(settings)
    if field.init
  }


def _to_plain(value: Any) -> Any:
  if dataclasses.is_dataclass(value) and not isinstance(value, type):
    return to_mapping(value)
  if isinstance(value, Mapping):
    return {key: _to_plain(item) for key, item in value.items()}
  if isinstance(value, tuple | list):
    return tuple(_to_plain(item) for item in value)
  return value


def from_mapping(
  cls: type[Settings], mapping: Mapping[str, Any], name: str = ''
) -> Settings:
  """Builds a dataclass, with nested ones, from plain data.

  Args:
    cls: a dataclass; its annotations say what fields hold.
    mapping: values by field; a field that is left out has its default.
    name: the place of the mapping in a config, for errors.

  Raises:
    ValueError: a field is not known, is missing, or has a value of another
      kind; names the field, the value and what was expected.
  """
  all_fields = dataclasses.fields(typing.cast(Any, cls))
  fields = {field.name: field for field in all_fields if field.init}
  prefix = f'{name}.' if name else ''
  for key in mapping:
    if key not in fields:
      raise ValueError(
        f'{prefix}{key}: no such setting, expected one of {", ".join(fields)}'
      )
  hints = typing.get_type_hints(cls)
  values = {
    key: _convert(hints[key], value, f'{prefix}{key}')
    for key, value in mapping.items()
  }
  missing = [
    key
    for key, field in fields.items()
    if key not in values
    and field.default is dataclasses.MISSING
    and field.default_factory is dataclasses.MISSING
  ]
  if missing:
    raise ValueError(f'{prefix}{missing[0]}: the setting has no default')
  return cls(**values)


def _convert(kind: Any, value: Any, name: str) -> Any:
  """A value as its annotation says, or a ValueError."""
  origin, arguments = typing.get_origin(kind), typing.get_args(kind)
  if origin in (typing.Union, types.UnionType):
    if value is None and type(None) in arguments:
      return None
    (kind,) = (a for a in arguments if a is not type(None))
    return _convert(kind, value, name)
  if dataclasses.is_dataclass(kind):
    if dataclasses.is_dataclass(value):
      return value
    if not isinstance(value, Mapping):
      raise ValueError(f'{name}={value!r}: expected settings by name')
    return from_mapping(typing.cast(type, kind), value, name)
  if origin is tuple:
    return _convert_tuple(arguments, value, name)
  if kind is Any or origin is not None:
    return dict(value) if isinstance(value, Mapping) else value
  if kind is float and type(value) is int:
    return float(value)
  if not isinstance(value, kind) or (kind is int and type(value) is bool):
    raise ValueError(
      f'{name}={value!r}: expected a value of type {kind.__name__}'
    )
  return value


def _convert_tuple(arguments: tuple[Any, ...], value: Any, name: str) -> Any:
  if not isinstance(value, tuple | list):
    raise ValueError(f'{name}={value!r}: expected a tuple')
  if len(arguments) == 2 and arguments[1] is Ellipsis:
    arguments = arguments[:1] * len(value)
  if len(arguments) != len(value):
    raise ValueError(f'{name}={value!r}: expected {len(arguments)} values')
  return tuple(
    _convert(kind, item, f'{name}[{i}]')
    for i, (kind, item) in enumerate(zip(arguments, value, strict=True))
  )
