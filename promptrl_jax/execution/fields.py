"""Checks on the fields of a job, which may come from a file or from a model.

A check never raises. It returns a value that can be hashed and sent, and
appends a message to `faults` if the value that it was given is not what the
field must hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from promptrl_jax.execution.limits import Limits


def text(name: str, value: Any, faults: list[str]) -> str:
  """Any string, including one that UTF-8 cannot encode."""
  if isinstance(value, str):
    return str.__str__(value)  # A subclass may hash and compare as it likes.
  faults.append(f'{name} must be a str, got {kind(value)}')
  return ''


def encodable(name: str, value: Any, faults: list[str]) -> str:
  """Trusted text: a lone surrogate in it is a broken job, not a bad program."""
  checked = text(name, value, faults)
  try:
    checked.encode()
    return checked
  except UnicodeEncodeError as error:
    faults.append(f'{name} must be text that UTF-8 can encode: {error}'[:200])
    return ''


def encodables(
  name: str, item: str, values: Any, faults: list[str]
) -> tuple[str, ...]:
  """A sequence of trusted texts; empty if any of them is wrong.

  Args:
    name: the field, for messages.
    item: how a message calls one element of it.
    values: the value of the field.
    faults: receives the messages.
  """
  if isinstance(values, str) or not isinstance(values, Sequence):
    faults.append(f'{name} must be a sequence of str, got {kind(values)}')
    return ()
  checked: list[str] = []
  before = len(faults)
  for number, value in enumerate(values, 1):
    checked.append(encodable(f'{item} {number}', value, faults))
    if len(faults) > before:
      return ()
  return tuple(checked)


def entry_point(value: Any, faults: list[str]) -> str | None:
  """The name of a function, or None."""
  return None if value is None else encodable('entry_point', value, faults)


def limits(value: Any, faults: list[str]) -> Limits | None:
  """Limits, or None for those of the pool."""
  if isinstance(value, Limits | None):
    return value
  faults.append(f'limits must be Limits or None, got {kind(value)}')
  return None


def kind(value: Any) -> str:
  """Name of a value's type, for messages."""
  return type(value).__name__[:80]
