"""A cache of completions and scores, keyed by model and request.

The key is a hash of the model's name and the whole request with its seed, so
two samples of one prompt never share an entry. Greedy requests ignore the seed.
The scope of a request, its split, is part of the key: an answer that something
was chosen by on one split does not stand in for one on another. Files of format
1 are older than scopes. They go on as they were, one answer for all splits.
A cache hit takes no time, no tokens and no money, but callers still count it as
a model call where strategies are compared.

The entries lie in an SQLite database, in memory or in a file, which several
processes can use at once. What a backend hands out one by one, as servers and
models in this process do, is written at once, so that a process that is killed,
or a backend that fails, loses no answer. The answers of any other are written
in one transaction, batch by batch.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import logging
import os
import pathlib
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from promptrl_jax.llm import progress
from promptrl_jax.llm.backend import (
  Backend,
  BackendError,
  Completion,
  Incremental,
  Request,
)
from promptrl_jax.llm.ledger import Ledger, Meter, Price

_LOG = logging.getLogger(__name__)
IN_MEMORY = ':memory:'
_Query = TypeVar('_Query')
_Answers = list[tuple[int, Any]]  # with their indices in a batch
# Version of the database, stored in its `user_version`: 2 has scopes in keys.
_FORMAT, _WITHOUT_SCOPES = 2, 1
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
    meter: Meter | None = None,
  ):
    """Opens or creates the database.

    Args:
      identity: further settings that the completions depend on, such as the
        precision of the parameters or the address of the server.
      batch: upper limit on the misses that the backend gets in one call; None:
        2,048 with a file and a backend that hands out none before the last,
        which a kill would lose, or a cap, which counts requests at their most;
        no limit otherwise.
      meter: counts what the backend is asked, and refuses what is beyond a cap.

    Raises:
      ValueError: the file is not a cache, or has another version.
    """
    if batch is not None and batch < 1:
      raise ValueError(f'batch={batch}: expected at least 1, or None')
    self.backend = backend
    self._identity = identity
    self._lock = threading.Lock()
    self._meter = meter or Ledger().meter('', backend, free=True)
    in_parts = not isinstance(backend, Incremental) or self._meter.is_limited
    if batch is None and in_parts and str(path) != IN_MEMORY:
      batch = _BATCH
    self._batch = batch
    self._database = _open(path)
    (version,) = self._database.execute('PRAGMA user_version').fetchone()
    self._has_scopes = version > _WITHOUT_SCOPES
    if self._has_scopes:
      with self._database:
        self._database.execute(
          'INSERT OR IGNORE INTO models VALUES (?, ?)', (self.name, identity)
        )
    else:
      _LOG.warning(
        'cache %s was made before splits had answers of their own: all splits '
        'share its answers; give another path to keep them apart',
        path,
      )
    self.hits = 0
    self.misses = 0
    self._counts: list[set[bytes]] = []

  @property
  def name(self) -> str:
    return self.backend.name

  @property
  def price(self) -> Price | None:
    """What the model costs; None: unknown."""
    return self._meter.price

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
      [(self._key(r), without_idle_seed(r)) for r in requests], self._ask
    )
    return [_completion(row) for row in rows]

  def score(
    self, requests: Sequence[Request], texts: Sequence[str], given: str = ''
  ) -> list[np.ndarray]:
    """Scores texts as `JaxLM.score`; see `scorer.as_scorer`."""
    model: Any = self.backend

    def ask(batch: Sequence[tuple[Request, str]]) -> Iterator[_Answers]:
      scores = model.score(*map(list, zip(*batch, strict=True)), given)
      yield list(enumerate(row.tolist() for row in scores))

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
    ask: Callable[[Sequence[_Query]], Iterator[_Answers]],
  ) -> list[Any]:
    """Returns answers to (key, query) pairs from the database or `ask`.

    `ask` takes a batch of queries and yields answers, which must be JSON data,
    with their indices; those that are yielded together are stored at once.
    """
    for asked in self._counts:
      asked.update(key for key, _ in queries)
    answers = self._find(key for key, _ in queries)
    missing = {key: query for key, query in queries if key not in answers}
    if missing:
      with progress.bar(len(missing), self.name) as bar:
        for rows in self._new_rows(missing, ask):
          with self._lock, self._database:
            self._database.executemany(
              'INSERT OR IGNORE INTO completions VALUES (?, ?)', rows
            )
          bar.update(len(rows))
      # If another process wrote an answer first, all processes return that one.
      answers |= self._find(missing)
    with self._lock:
      self.misses += len(missing)
      self.hits += len(queries) - len(missing)
    return [answers[key] for key, _ in queries]

  def _new_rows(
    self,
    missing: Mapping[bytes, _Query],
    ask: Callable[[Sequence[_Query]], Iterator[_Answers]],
  ) -> Iterator[list[tuple[bytes, str]]]:
    """Yields keys and answers, as JSON, that are to be stored together."""
    size, keys = self._batch or len(missing), list(missing)
    for start in range(0, len(keys), size):
      batch = keys[start : start + size]
      for answers in ask([missing[key] for key in batch]):
        # JSON escapes unpaired surrogates, which UTF-8 cannot encode.
        yield [(batch[i], json.dumps(answer)) for i, answer in answers]

  def _ask(self, requests: Sequence[Request]) -> Iterator[_Answers]:
    """Asks the backend, within the caps of the run."""
    with self._meter.paying(requests) as record:
      if isinstance(self.backend, Incremental):
        for i, completion in self.backend.complete_each(requests):
          record(i, completion)
          yield [(i, _row(completion))]
        return
      completions = self.backend.complete(requests)
      if len(completions) != len(requests):
        raise BackendError(
          f'{self.name} gave {len(completions)} completions for '
          f'{len(requests)} requests'
        )
      for i, completion in enumerate(completions):
        record(i, completion)
      yield list(enumerate(map(_row, completions)))

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
    if not self._has_scopes:
      request = dataclasses.replace(request, scope='')
    return _key(self.name, self._identity, request, *scored)

  def _find(self, keys: Iterable[bytes]) -> dict[bytes, Any]:
    answers = {}
    query = 'SELECT completion FROM completions WHERE key = ?'
    with self._lock:
      for key in keys:
        row = self._database.execute(query, (key,)).fetchone()
        if row is not None:
          answers[key] = json.loads(row[0])
    return answers


class Record:
  """Reads the completions in a file of `CachedBackend`."""

  def __init__(self, path: str | os.PathLike[str]):
    """Opens a file, to read only.

    Raises:
      ValueError: it is not a cache, or one that does not name its models.
    """
    uri = f'{pathlib.Path(path).absolute().as_uri()}?mode=ro'
    try:
      self._database = sqlite3.connect(uri, uri=True, check_same_thread=False)
      (version,) = self._database.execute('PRAGMA user_version').fetchone()
    except sqlite3.Error as error:
      raise ValueError(
        f'{path} is no cache of completions ({error})'
      ) from error
    if version != _FORMAT:
      self._database.close()
      raise ValueError(
        f'{path} has format {version}, expected {_FORMAT}: it is no cache of '
        'completions, or an older one, which does not name its models'
      )
    self._lock = threading.Lock()

  def models(self) -> list[tuple[str, str]]:
    """Returns name and identity of all models that used the file."""
    with self._lock:
      rows = self._database.execute('SELECT name, identity FROM models')
      return sorted(rows.fetchall())

  def find(
    self, name: str, identity: str, request: Request
  ) -> Completion | None:
    """Returns what a model answered to a request; None: it was not asked."""
    query = 'SELECT completion FROM completions WHERE key = ?'
    with self._lock:
      row = self._database.execute(
        query, (_key(name, identity, request),)
      ).fetchone()
    return None if row is None else _completion(json.loads(row[0]))


def _row(completion: Completion) -> list[Any]:
  """The values of a completion; older files hold rows without the last."""
  return list(completion.to_fields().values())


def _completion(row: Sequence[Any]) -> Completion:
  names = [field.name for field in dataclasses.fields(Completion)]
  return Completion.from_fields(dict(zip(names, row, strict=False)))


def _key(name: str, identity: str, request: Request, *scored: str) -> bytes:
  fields = without_idle_seed(request).to_fields()
  if not request.scope:
    del fields['scope']  # Such keys are those of the older format.
  content = json.dumps([name, identity, fields, *scored], sort_keys=True)
  return hashlib.sha256(content.encode()).digest()


def without_idle_seed(request: Request) -> Request:
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
      if version not in (0, _WITHOUT_SCOPES, _FORMAT):
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
      if version != _WITHOUT_SCOPES:
        database.execute(
          'CREATE TABLE IF NOT EXISTS models '
          '(name TEXT, identity TEXT, PRIMARY KEY (name, identity)) '
          'WITHOUT ROWID'
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
