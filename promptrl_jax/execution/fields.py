"""Checks on the fields of a job, which may come from a file or from a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from promptrl_jax.execution.limits import Limits


def check(job: Any, item: str) -> None:
  """Replaces wrong fields of a frozen job by empty values; never raises.

  Afterwards every field can be hashed and sent, and `malformed` names the first
  fault, '' if there is none.

  Args:
    job: a `Program` or a `Call`.
    item: one element of its sequence of texts, `test` or `expression`.
  """
  faults: list[str] = []
  checked: dict[str, Any] = {
    'code': _text('code', job.code, faults),
    f'{item}s': _encodables(item, getattr(job, f'{item}s'), faults),
    'setup': _encodable('setup', job.setup, faults),
  }
  if job.entry_point is not None:
    checked['entry_point'] = _encodable('entry_point', job.entry_point, faults)
  if not isinstance(job.limits, Limits | None):
    faults.append(f'limits must be Limits or None, got {_kind(job.limits)}')
    checked['limits'] = None
  checked['malformed'] = faults[0] if faults else ''
  for name, value in checked.items():
    object.__setattr__(job, name, value)


def _text(name: str, value: Any, faults: list[str]) -> str:
  """Any string, including one that UTF-8 cannot encode."""
  if isinstance(value, str):
    return str.__str__(value)  # A subclass may hash and compare as it likes.
  faults.append(f'{name} must be a str, got {_kind(value)}')
  return ''


def _encodable(name: str, value: Any, faults: list[str]) -> str:
  """Trusted text: a lone surrogate in it is a broken job, not a bad program."""
  checked = _text(name, value, faults)
  try:
    checked.encode()
    return checked
  except UnicodeEncodeError as error:
    faults.append(f'{name} must be text that UTF-8 can encode: {error}'[:200])
    return ''


def _encodables(item: str, values: Any, faults: list[str]) -> tuple[str, ...]:
  """A sequence of trusted texts; empty if any of them is wrong."""
  if isinstance(values, str) or not isinstance(values, Sequence):
    faults.append(f'{item}s must be a sequence of str, got {_kind(values)}')
    return ()
  checked: list[str] = []
  before = len(faults)
  for number, value in enumerate(values, 1):
    checked.append(_encodable(f'{item} {number}', value, faults))
    if len(faults) > before:
      return ()
  return tuple(checked)


def _kind(value: Any) -> str:
  return type(value).__name__[:80]
