"""What a search was answered, so that it goes on without paying twice.

A search is a function of its seed and its answers. One that is started again
from the beginning asks the same, finds the answers here and is, without a call,
where it was interrupted; with a larger budget it goes on from there.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from promptrl_jax.files import write_atomically
from promptrl_jax.strategies.texts.requests import (
  Evaluate,
  Proposal,
  Seen,
)

_FORMAT = 1


class Journal:
  """Answers by request, in a JSON file or in memory."""

  def __init__(
    self,
    path: str | os.PathLike[str] | None,
    identity: Mapping[str, Any] | None = None,
  ):
    """Reads the file, if there is one.

    Args:
      path: of the file; None: in memory.
      identity: what answers depend on beside their requests, as plain data.

    Raises:
      ValueError: the file is no journal, or one of another search.
    """
    self._path = None if path is None else pathlib.Path(path)
    self._header = {'format': _FORMAT, **(identity or {})}
    self._answers: dict[str, Any] = {}
    if self._path is not None and self._path.exists():
      self._answers = self._read(self._path)

  def __len__(self) -> int:
    return len(self._answers)

  def answer(
    self,
    requests: Sequence[Any],
    ask: Callable[[Sequence[Any]], Sequence[Any]],
    at_once: int = 0,
  ) -> list[Any]:
    """Returns answers to requests of one kind, in order.

    Args:
      requests: all `Propose` or all `Evaluate`.
      ask: answers those that are not known.
      at_once: requests between two savings; 0: all.
    """
    keys = [_key(request) for request in requests]
    missing = {
      key: request
      for key, request in zip(keys, requests, strict=True)
      if key not in self._answers
    }
    new = list(missing)
    for start in range(0, len(new), at_once or len(new) or 1):
      part = new[start : start + (at_once or len(new))]
      replies = ask([missing[key] for key in part])
      self._answers |= {
        key: list(dataclasses.astuple(reply))
        for key, reply in zip(part, replies, strict=True)
      }
      self._write()
    kind = Seen if isinstance(requests[0], Evaluate) else Proposal
    return [kind(*self._answers[key]) for key in keys]

  def _write(self) -> None:
    if self._path is None:
      return
    content = {**self._header, 'answers': self._answers}
    text = json.dumps(content, indent=1) + '\n'
    write_atomically(self._path, text.encode())

  def _read(self, path: pathlib.Path) -> dict[str, Any]:
    try:
      content = json.loads(path.read_text(encoding='utf-8'))
      answers = content.pop('answers')
    except (ValueError, KeyError, AttributeError, TypeError) as error:
      raise ValueError(
        f'{path} is no journal of a search ({error}): give another path'
      ) from error
    if content != self._header:
      names = content.keys() | self._header.keys()
      different = sorted(
        name for name in names if content.get(name) != self._header.get(name)
      )
      raise ValueError(
        f'{path} is the journal of another search: {", ".join(different)} '
        'differ; give another path, or the same arguments to go on'
      )
    return answers


def _key(request: Any) -> str:
  content = [type(request).__name__, dataclasses.asdict(request)]
  text = json.dumps(content, sort_keys=True)
  return hashlib.sha256(text.encode()).hexdigest()[:32]
