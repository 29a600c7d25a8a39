"""A cache of completions and scores, keyed by model and request.

The key is a hash of the model's name and the whole request with its seed, so
two samples of one prompt never share an entry. Greedy requests ignore the seed.
A cache hit takes no time and no tokens, but callers still count it as a model
call in their ledger.

The entries lie in an SQLite database, in memory or in a file, which several
processes can use at once. A batch is written in one transaction before its
completions are returned, so a process that is killed loses only the batch that
it was waiting for.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import pathlib
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np

from promptrl_jax.llm.backend import Backend, BackendError, Completion, Request

IN_MEMORY = ':memory:'
_Query = TypeVar('_Query')
_FORMAT = 1  # Version of the database, stored in its `user_version`.
_BATCH = 2048  # requests to the backend at once, with a file
_LOCK_TIMEOUT_S = 60.0  # How long to wait for another process that writes.


class CachedBackend:
  """A backend that answers repeated requests of another one from a database."""

  def __init__(
    self,
    backend: Backend,
    path: str | os.PathLike[str] = IN_MEMORY,
    identity: str = '',
    batch: int | None = None,
  ):
    """Opens or creates the database.

    Args:
      identity: further settings that the completions depend on, such as the
        precision of the parameters or the address of the server.
      batch: upper limit on the misses that the backend gets in one call; None:
        2,048 with a file, so that what a kill loses took minutes, and no limit
        without. The completions of a call are stored before the next call.

    Raises:
      ValueError: the file is not a cache, or has another version.
    """
    if batch is not None and batch < 1:
      raise ValueError(f'batch={batch}: expected at least 1, or None')
    self.backend = backend
    self._identity = identity
    self._batch = batch or (None if str(path) == IN_MEMORY else _BATCH)
    self._lock = threading.Lock()
    self._database = _open(path)
    self.hits = 0
    self.misses = 0
    self._counts: list[set[bytes]] = []

  @property
  def name(self) -> str:
    return self.backend.name

  @contextlib.contextmanager
  def counting(self) -> Iterator[set[bytes]]:
    """Collects the keys of all queries meanwhile.

    Their number is what an empty cache would have asked the backend for.
    """
    asked: set[bytes] = set()
    self._counts.append(asked)
    try:
      yield asked
    finally:
      self._counts = [other for other in self._counts if other is not asked]

  def complete(self, requests: Sequence[Request]) -> list[Completion]:
    """Returns completions in order; misses go to the backend in batches."""
    rows = self._answers(
      [(self._key(r), _without_idle_seed(r)) for r in requests],
      lambda batch: [
        dataclasses.astuple(c) for c in self.backend.complete(batch)
      ],
    )
    return [Completion(*row) for row in rows]

  def score(
    self, requests: Sequence[Request], texts: Sequence[str], given: str = ''
  ) -> list[np.ndarray]:
    """Scores texts as `JaxLM.score`; see `scorer.as_scorer`."""
    model: Any = self.backend

    def ask(batch: Sequence[tuple[Request, str]]) -> list[list[float]]:
      scores = model.score(*map(list, zip(*batch, strict=True)), given)
      return [row.tolist() for row in scores]

    # A score depends only on the messages of a request.
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
    queries: Sequence[tuple[bytes, _Query]],
    ask: Callable[[Sequence[_Query]], Sequence[Any]],
  ) -> list[Any]:
    """Returns answers to (key, query) pairs from the database or `ask`.

    `ask` takes a batch of queries; answers must be JSON data.
    """
    for asked in self._counts:
      asked.update(key for key, _ in queries)
    answers = self._find(key for key, _ in queries)
    missing = {key: query for key, query in queries if key not in answers}
    if missing:
      size, keys = self._batch or len(missing), list(missing)
      for start in range(0, len(keys), size):
        batch = keys[start : start + size]
        new_answers = ask([missing[key] for key in batch])
        if len(new_answers) != len(batch):
          raise BackendError(
            f'{self.name} gave {len(new_answers)} completions for {len(batch)} '
            'requests'
          )
        # JSON escapes unpaired surrogates, which UTF-8 cannot encode.
        rows = zip(batch, map(json.dumps, new_answers), strict=True)
        with self._lock, self._database:
          self._database.executemany(
            'INSERT OR IGNORE INTO completions VALUES (?, ?)', rows
          )
      # If another process wrote an answer first, all processes return that one.
      answers |= self._find(missing)
    with self._lock:
      self.misses += len(missing)
      self.hits += len(queries) - len(missing)
    return [answers[key] for key, _ in queries]

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
    answers = {}
    query = 'SELECT completion FROM completions WHERE key = ?'
    with self._lock:
      for key in keys:
        row = self._database.execute(query, (key,)).fetchone()
        if row is not None:
          answers[key] = json.loads(row[0])
    return answers


def _without_idle_seed(request: Request) -> Request:
  """Returns the request with seed 0 if it is greedy."""
  if request.temperature == 0:
    return dataclasses.replace(request, seed=0)
  return request


def _open(path: str | os.PathLike[str]) -> sqlite3.Connection:
  if str(path) != IN_MEMORY:
    pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
  try:
    database = sqlite3.connect(
      path, timeout=_LOCK_TIMEOUT_S, check_same_thread=False
    )
  except sqlite3.Error as error:
    raise ValueError(f'no cache at {path}: {error}') from error
  try:
    # In WAL mode readers do not wait for writers, and a kill loses no commit.
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
