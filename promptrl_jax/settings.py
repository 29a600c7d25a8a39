"""Settings as frozen dataclasses, and as plain data for files and flags.

A dataclass holds the fields, their defaults and their documentation; a config
file states deviations. `from_mapping(type(s), to_mapping(s)) == s` for every
instance `s`, also after a trip through JSON.

  c = to_config_dict(MbppPpo())       # in a config file
  c.editing.budget = 4
  settings = from_mapping(MbppPpo, c)  # in an experiment
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Collection, Mapping
from typing import Any, TypeVar

from ml_collections import ConfigDict, config_dict

Settings = TypeVar('Settings')


def derived(default: Any) -> Any:
  """Returns a field that is computed from others: no file or flag sets it."""
  return dataclasses.field(default=default, metadata={'derived': True})


def check_choices(
  settings: Any, prefix: str = '', **known: Collection[str]
) -> None:
  """Raises ValueError for a field that is not one of its known values."""
  for field, values in known.items():
    if getattr(settings, field) not in values:
      raise ValueError(
        f'{prefix}{field}={getattr(settings, field)!r}: expected one of '
        f'{", ".join(values)}'
      )


def fields(cls: Any) -> dict[str, dataclasses.Field]:
  """Returns the fields of a dataclass that files and flags may set, by name."""
  return {
    field.name: field
    for field in dataclasses.fields(cls)
    if field.init and not field.metadata.get('derived')
  }


def to_mapping(settings: Any) -> dict[str, Any]:
  """Returns settings as plain data; nested dataclasses are dicts."""
  return {name: _to_plain(getattr(settings, name)) for name in fields(settings)}


def _to_plain(value: Any) -> Any:
  if dataclasses.is_dataclass(value) and not isinstance(value, type):
    return to_mapping(value)
  if isinstance(value, Mapping):
    return {key: _to_plain(item) for key, item in value.items()}
  if isinstance(value, tuple | list):
    return tuple(_to_plain(item) for item in value)
  return value


def to_config_dict(settings: Any) -> ConfigDict:
  """Returns settings as a config whose fields flags may override.

  A field that is None has a placeholder of its type, so that a flag can be
  parsed. An empty mapping is an empty tuple, since no flag can add a name to a
  config: give pairs, `--config.options="(('cost', 0.02),)"`.
  """
  hints = typing.get_type_hints(type(settings))
  config = ConfigDict()
  for name in fields(settings):
    value = getattr(settings, name)
    if dataclasses.is_dataclass(value):
      config[name] = to_config_dict(value)
    elif value is None:
      config[name] = config_dict.placeholder(_without_none(hints[name]))
    elif value == {} and typing.get_origin(hints[name]) is Mapping:
      config[name] = ()
    else:
      config[name] = _to_plain(value)
  return config


def override(settings: Settings, changes: Mapping[str, Any]) -> Settings:
  """Returns a copy with changed fields; those of nested dataclasses as dicts.

  Raises:
    ValueError: a field is not known, or has a value of another kind.
  """
  merged = _merge(to_mapping(settings), changes)
  return from_mapping(type(settings), merged)


def _merge(mapping: Mapping[str, Any], changes: Mapping[str, Any]) -> dict:
  merged = dict(mapping)
  for name, value in changes.items():
    old = merged.get(name)
    if isinstance(value, Mapping) and isinstance(old, Mapping):
      value = _merge(old, value)
    merged[name] = value
  return merged


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
  known = fields(cls)
  prefix = f'{name}.' if name else ''
  for key in mapping:
    if key not in known:
      raise ValueError(
        f'{prefix}{key}: no such setting, expected one of '
        f'{", ".join(known) or "none"}'
      )
  hints = typing.get_type_hints(cls)
  values = {
    key: _convert(hints[key], value, f'{prefix}{key}')
    for key, value in mapping.items()
  }
  missing = [
    key
    for key, field in known.items()
    if key not in values
    and field.default is dataclasses.MISSING
    and field.default_factory is dataclasses.MISSING
  ]
  if missing:
    raise ValueError(f'{prefix}{missing[0]}: the setting has no default')
  return cls(**values)


def _without_none(kind: Any) -> Any:
  """X of `X | None`."""
  arguments = typing.get_args(kind)
  (other,) = (a for a in arguments if a is not type(None))
  return other


def _convert(kind: Any, value: Any, name: str) -> Any:
  """A value as its annotation says, or a ValueError."""
  origin, arguments = typing.get_origin(kind), typing.get_args(kind)
  if origin in (typing.Union, types.UnionType):
    if value is None and type(None) in arguments:
      return None
    return _convert(_without_none(kind), value, name)
  if dataclasses.is_dataclass(kind):
    if dataclasses.is_dataclass(value):
      return value
    if not isinstance(value, Mapping):
      raise ValueError(f'{name}={value!r}: expected settings by name')
    return from_mapping(typing.cast(type, kind), value, name)
  if origin is tuple:
    return _convert_tuple(arguments, value, name)
  if origin is Mapping:
    return _convert_mapping(value, name)
  if kind is Any or origin is not None:
    return _to_plain(value)
  if kind is float and type(value) is int:
    return float(value)
  if not isinstance(value, kind) or (kind is int and type(value) is bool):
    raise ValueError(
      f'{name}={value!r}: expected a value of type {kind.__name__}'
    )
  return value


def _convert_mapping(value: Any, name: str) -> dict[str, Any]:
  try:
    return _to_plain(dict(value))
  except (TypeError, ValueError):
    raise ValueError(
      f'{name}={value!r}: expected values by name, or pairs of both'
    ) from None


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
