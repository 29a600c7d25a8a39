"""A cache of answers that never shares a sample between two seeds.

The key is a hash of the model's name and the whole request, so samples at a
temperature are told apart by their seed. Greedy requests ignore the seed:
repeating one costs nothing. A hit is free in time and tokens but still a call
for the ledger, which is charged by whoever asks.

Completions lie in an SQLite database, in memory or in a file. A file may be
used by several processes at once. What was answered is in the file before it is
handed out, in one transaction per batch: a process that is killed loses what it
was waiting for and nothing else.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import pathlib
import sqlite3
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import numpy as np

from promptrl_jax.llm.backend import Backend, BackendError, Completion, Request

IN_MEMORY = ':memory:'
_Asked = TypeVar('_Asked')
_FORMAT = 1  # Of the database; stands in its `user_version`.
_PATIENCE_S = 60.0  # With another process that writes.


class CachedBackend:
  """Wraps a backend and answers repeated requests from a database.

  Attributes:
    backend: the wrapped backend.
    hits: requests answered without the wrapped backend, repetitions within one
      batch included.
    misses: requests passed on to it.
  """

  def __init__(
    self,
    backend: Backend,
    path: str | os.PathLike[str] = IN_MEMORY,
    identity: str = '',
    batch: int | None = None,
  ):
    """Opens or makes the database.

    Args:
      backend: the model; its name is part of every key.
      path: file of the database; parents are made.
      identity: what else the answers depend on, such as the precision of the
        parameters or the address of the server.
      batch: most misses that the backend gets in one call; None: all of them.
        What a call has answered is kept before the next one.

    Raises:
      ValueError: the file is something else, or of another version.
    """
    if batch is not None and batch < 1:
      raise ValueError(f'batch={batch}: expected at least 1, or None')
    self.backend = backend
    self._identity = identity
    self._batch = batch
    self._lock = threading.Lock()
    self._database = _open(path)
    self.hits = 0
    self.misses = 0

  @property
  def name(self) -> str:
    return self.backend.name

  def complete(self, requests: Sequence[Request]) -> list[Completion]:
    """Answers in order; misses go to the backend in batched calls."""
    rows = self._answers(
      [(self._key(r), _without_idle_seed(r)) for r in requests],
      lambda some: [
        dataclasses.astuple(c) for c in self.backend.complete(some)
      ],
    )
    return [Completion(*row) for row in rows]

  def score(
    self, requests: Sequence[Request], texts: Sequence[str], given: str = ''
  ) -> list[np.ndarray]:
    """As `JaxLM.score`, for a backend that can; see `scorer.as_scorer`."""
    model: Any = self.backend

    def ask(some: Sequence[tuple[Request, str]]) -> list[list[float]]:
      found = model.score(*map(list, zip(*some, strict=True)), given)
      return [row.tolist() for row in found]

    # Of a request the messages count.
    rows = self._answers(
      [
        (self._key(Request(r.messages), text, given), (r, text))
        for r, text in zip(requests, texts, strict=True)
      ],
      ask,
    )
    return [np.asarray(row, np.float32) for row in rows]

  def _answers(
    self,
    asked: Sequence[tuple[bytes, _Asked]],
    ask: Callable[[Sequence[_Asked]], Sequence[Any]],
  ) -> list[Any]:
    """What is known, or else what `ask` says, in order; anything JSON holds.

    Args:
      asked: keys, and what stands for each of them.
      ask: answers in batches.
    """
    known = self._find(key for key, _ in asked)
    missing = {key: one for key, one in asked if key not in known}
    if missing:
      size, wanted = self._batch or len(missing), list(missing)
      for start in range(0, len(wanted), size):
        some = wanted[start : start + size]
        answers = ask([missing[key] for key in some])
        if len(answers) != len(some):
          raise BackendError(
            f'{self.name} gave {len(answers)} completions for {len(some)} '
            'requests'
          )
        self._keep(zip(some, answers, strict=True))
      # What another process wrote first counts, so that all see one answer.
      known |= self._find(missing)
    with self._lock:
      self.misses += len(missing)
      self.hits += len(asked) - len(missing)
    return [known[key] for key, _ in asked]

  def fits(self, request: Request) -> bool:
    return self.backend.fits(request)

  def count_tokens(self, text: str) -> int:
    return self.backend.count_tokens(text)

  def close(self) -> None:
    """Closes the database and the backend."""
    with self._lock:
      self._database.close()
    self.backend.close()

  def _key(self, request: Request, *scored: str) -> bytes:
    fields = dataclasses.asdict(_without_idle_seed(request))
    parts = [self.name, self._identity, fields, *scored]
    content = json.dumps(parts, sort_keys=True)
    return hashlib.sha256(content.encode()).digest()

  def _find(self, keys: Iterable[bytes]) -> dict[bytes, Any]:
    found = {}
    query = 'SELECT completion FROM completions WHERE key = ?'
    with self._lock:
      for key in keys:
        row = self._database.execute(query, (key,)).fetchone()
        if row is not None:
          found[key] = json.loads(row[0])
    return found

  def _keep(self, answers: Iterable[tuple[bytes, Any]]) -> None:
    # JSON, since a completion may hold half of a surrogate pair.
    rows = [(key, json.dumps(answer)) for key, answer in answers]
    with self._lock, self._database:
      self._database.executemany(
        'INSERT OR IGNORE INTO completions VALUES (?, ?)', rows
      )


def _without_idle_seed(request: Request) -> Request:
  """The request, with a seed that has no effect set to 0."""
  if request.temperature == 0:
    return dataclasses.replace(request, seed=0)
  return request


def _open(path: str | os.PathLike[str]) -> sqlite3.Connection:
  if str(path) != IN_MEMORY:
    pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
  try:
    database = sqlite3.connect(
      path, timeout=_PATIENCE_S, check_same_thread=False
    )
  except sqlite3.Error as error:
    raise ValueError(f'no cache at {path}: {error}') from error
  try:
    # Readers do not wait for a writer; a kill at any time loses no commit.
    database.execute('PRAGMA journal_mode = WAL')
    database.execute('PRAGMA synchronous = NORMAL')
    with database:
      database.execute('BEGIN IMMEDIATE')
      (version,) = database.execute('PRAGMA user_version').fetchone()
      if version not in (0, _FORMAT):
        raise ValueError(
          f'cache {path} has format {version}, expected {_FORMAT}: give '
          'another path'
        )
      (tables,) = database.execute(
        'SELECT COUNT(*) FROM sqlite_master'
      ).fetchone()
      if version == 0 and tables:
        raise ValueError(
          f'{path} is a database of something else: give another path'
        )
      database.execute(
        'CREATE TABLE IF NOT EXISTS completions '
        '(key BLOB PRIMARY KEY, completion TEXT NOT NULL) WITHOUT ROWID'
      )
      database.execute(f'PRAGMA user_version = {_FORMAT}')
  except sqlite3.DatabaseError as error:
    database.close()
    raise ValueError(
      f'{path} is no cache of completions ({error}): give another path'
    ) from error
  except ValueError:
    database.close()
    raise
  return database
