"""Fields of a `config.json`, read in one way by all families."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def required(
  values: Mapping[str, Any], fields: Mapping[str, str]
) -> dict[str, Any]:
  """Fields under our names.

  Args:
    values: the content of a `config.json`.
    fields: our name -> theirs.

  Raises:
    ValueError: some are missing or null; names all of them.
  """
  missing = [hf for hf in fields.values() if values.get(hf) is None]
  if missing:
    raise ValueError(f'config.json lacks {", ".join(missing)}')
  return {ours: values[hf] for ours, hf in fields.items()}


def field(values: Mapping[str, Any], name: str) -> Any:
  """One required field; raises as `required` does."""
  return required(values, {name: name})[name]


def optional(
  values: Mapping[str, Any], fields: Mapping[str, str]
) -> dict[str, Any]:
  """Like `required`, without those that are missing or null."""
  present = {k: v for k, v in fields.items() if values.get(v) is not None}
  return required(values, present)


def expect(values: Mapping[str, Any], name: str, *supported: Any) -> None:
  """Refuses a value that is not supported; a missing or null one passes.

  Raises:
    ValueError: names the field, its value and what is supported.
  """
  value = values.get(name)
  if value is not None and value not in supported:
    expected = ' or '.join(map(repr, supported))
    raise ValueError(f'{name}={value!r} is not supported: expected {expected}')


def as_tuple(value: Any) -> tuple[int, ...]:
  """Token ids: null, one or a list of them."""
  if value is None:
    return ()
  return tuple(value) if isinstance(value, list | tuple) else (value,)
