"""Reads and checks fields of a `config.json`, for all model families."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def required(
  values: Mapping[str, Any], fields: Mapping[str, str]
) -> dict[str, Any]:
  """Returns required fields of a `config.json` under our names.

  `fields` maps ours to theirs; a ValueError names all that are missing or null.
  """
  missing = [hf for hf in fields.values() if values.get(hf) is None]
  if missing:
    raise ValueError(f'config.json lacks {", ".join(missing)}')
  return {ours: values[hf] for ours, hf in fields.items()}


def field(values: Mapping[str, Any], name: str) -> Any:
  return required(values, {name: name})[name]


def expect(values: Mapping[str, Any], name: str, *supported: Any) -> None:
  """Raises a ValueError unless a field is missing, null or supported."""
  value = values.get(name)
  if value is not None and value not in supported:
    expected = ' or '.join(map(repr, supported))
    raise ValueError(f'{name}={value!r} is not supported: expected {expected}')


def as_tuple(value: Any) -> tuple[int, ...]:
  """Converts null, one token id or a list of them to a tuple."""
  if value is None:
    return ()
  return tuple(value) if isinstance(value, list | tuple) else (value,)
