"""A backend that gives recorded completions again, and no others.

  runs/a/trace.jsonl        every request of an evaluation beside its completion
  runs/completions.sqlite   all that a cache has bought, training included

A request is answered if the same one was recorded: the messages, how they are
sampled, the split, and the seed unless it is greedy. Only the recorded model
could count its tokens: `count_tokens` and `fits` estimate, as for a server.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

from promptrl_jax.llm import cache
from promptrl_jax.llm.backend import BackendError, Completion, Message, Request
from promptrl_jax.llm.http import most_tokens
from promptrl_jax.llm.http_config import estimate_tokens

_NAME = 'replay of '
_SHOWN = 120  # characters of a prompt in an error
# Looks an answer up; None if there is none.
FindFn = Callable[[Request], Completion | None]


@dataclasses.dataclass(frozen=True)
class ReplayOptions:
  """Which of the recorded models answers.

  Attributes:
    role: in a trace, whose requests count; empty: those of all roles.
    name: in a cache with several models, the one that answered.
    identity: its settings, if the cache has several of that name.
  """

  role: str = ''
  name: str = ''
  identity: str = ''


class ReplayBackend:
  """Answers from a record."""

  def __init__(self, name: str, find: FindFn, max_context: int | None = None):
    """Puts the parts together.

    Args:
      name: of the record, for reports and errors.
      find: looks an answer up.
      max_context: as of the recorded server, see `HttpConfig`.
    """
    self.name = _NAME + name
    self._find = find
    self._max_context = max_context

  def complete(self, requests: Sequence[Request]) -> list[Completion]:
    """Returns the recorded completions.

    Raises:
      BackendError: a request was not recorded; the text names it.
    """
    return [self._answer(request) for request in requests]

  def fits(self, request: Request) -> bool:
    """Returns whether the estimate fits `max_context`; true if it is `None`."""
    limit = self._max_context
    return limit is None or most_tokens(request) <= limit

  def count_tokens(self, text: str) -> int:
    return estimate_tokens(text)

  def close(self) -> None:
    """Has nothing to free."""

  def _answer(self, request: Request) -> Completion:
    completion = self._find(cache.without_idle_seed(request))
    if completion is not None:
      return completion
    prompt = ' '.join('\n'.join(m.content for m in request.messages).split())
    sampled = {**vars(request), 'messages': len(request.messages)}
    raise BackendError(
      f'{self.name} has no answer to the request {sampled} that ends in '
      f'{prompt[-_SHOWN:]!r}: it was never asked there, or with other settings'
    )


def load(
  path: str | pathlib.Path,
  options: ReplayOptions = ReplayOptions(),
  max_context: int | None = None,
) -> ReplayBackend:
  """Opens a record: a trace (`.jsonl`), or a file of `CachedBackend`.

  Raises:
    FileNotFoundError: there is no such file.
    ValueError: it is no record, an old one, or does not say which model is
      meant.
  """
  path = pathlib.Path(path)
  if not path.is_file():
    raise FileNotFoundError(
      f'no record to replay at {path}: expected the trace.jsonl of a run, or '
      'the file of its cache'
    )
  if path.suffix == '.jsonl':
    return _of_trace(path, options, max_context)
  return _of_cache(path, options, max_context)


def _of_trace(
  path: pathlib.Path, options: ReplayOptions, max_context: int | None
) -> ReplayBackend:
  answers: dict[Request, Completion] = {}
  digest = hashlib.sha256()
  with open(path, 'rb') as file:
    for number, line in enumerate(file, 1):
      digest.update(line)
      for role, request, completion in _pairs(line, f'{path}:{number}'):
        if options.role in ('', role):
          known = answers.setdefault(request, completion)
          if known != completion:
            raise ValueError(
              f'{path}:{number}: a request to the {role} has two answers, '
              f'{known.text[:40]!r} and {completion.text[:40]!r}: if they are '
              'of two models, give options.role'
            )
  if not answers:
    raise ValueError(
      f'{path} holds no request'
      + (f' to the role {options.role!r}' if options.role else '')
    )
  name = f'{path.name}@{digest.hexdigest()[:16]}'
  return ReplayBackend(name, answers.get, max_context)


def _pairs(line: bytes, where: str) -> list[tuple[str, Request, Completion]]:
  """The roles, requests and completions of one row of a trace."""
  try:
    row = json.loads(line)
    sent = row['sent']
    if sent and 'answers' not in row:
      raise ValueError('a trace from before completions were recorded')
    return [
      (ask['role'], _request(ask), Completion.from_fields(answer))
      for ask, answer in zip(sent, row.get('answers', ()), strict=True)
    ]
  except (ValueError, TypeError, KeyError) as error:
    raise ValueError(f'{where}: cannot be replayed ({error})') from error


def _request(ask: dict[str, Any]) -> Request:
  fields = {name: value for name, value in ask.items() if name != 'role'}
  fields['messages'] = tuple(Message(**m) for m in ask['messages'])
  fields['stop'] = tuple(ask['stop'])
  return cache.without_idle_seed(Request(**fields))


def _of_cache(
  path: pathlib.Path, options: ReplayOptions, max_context: int | None
) -> ReplayBackend:
  record = cache.Record(path)
  recorded = [m for m in record.models() if not m[0].startswith(_NAME)]
  chosen = [
    (name, identity)
    for name, identity in recorded
    if options.name in ('', name) and options.identity in ('', identity)
  ]
  if len(chosen) != 1:
    listed = '; '.join(f'name {n!r}, identity {i!r}' for n, i in recorded)
    raise ValueError(
      f'{path} has {len(chosen)} models with options.name={options.name!r} and '
      f'options.identity={options.identity!r}: expected one of {listed or "-"}'
    )
  name, identity = chosen[0]
  find = lambda request: record.find(name, identity, request)
  return ReplayBackend(name, find, max_context)
