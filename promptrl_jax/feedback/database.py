"""Opens the file of a store, after a look at what it is."""

from __future__ import annotations

import os
import pathlib
import random
import sqlite3
import time
from collections.abc import Callable
from typing import TypeVar

from promptrl_jax.feedback import migrations
from promptrl_jax.feedback.errors import (
  DamagedStore,
  NotAStore,
  StoreBusy,
  StoreError,
)

_Result = TypeVar('_Result')
_STRICT_SINCE = (3, 37, 0)
ATTEMPTS = 4  # Before each of them fails, SQLite waits for the time-out.
_PAUSE_S = 0.05
# The last one: too many began to read while the log was set up.
_BUSY = (
  sqlite3.SQLITE_BUSY,
  sqlite3.SQLITE_LOCKED,
  sqlite3.SQLITE_PROTOCOL,
)


def open_writer(
  path: str | os.PathLike[str], timeout_s: float
) -> sqlite3.Connection:
  """Opens a store to write, or creates it, and brings its schema up to date.

  Args:
    timeout_s: how long SQLite waits for another process that writes; what is
      still locked then is tried `ATTEMPTS` times in all.

  Raises:
    NotAStore: the path holds something else, which is left as it is.
    NewerSchema: a newer version of this package wrote it.
    DamagedStore: it is truncated or damaged.
    StoreBusy: another process kept it locked.
    StoreError: the file system or SQLite refuses.
  """
  path = pathlib.Path(path).absolute()
  if sqlite3.sqlite_version_info < _STRICT_SINCE:
    raise StoreError(
      f'SQLite {sqlite3.sqlite_version} has no strict tables: expected 3.37 or '
      'newer, which Python brings in most builds'
    )
  try:
    path.parent.mkdir(parents=True, exist_ok=True)
    _check_not_cut(path)
    if not path.exists():  # What people write is for the owner of the file.
      os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
  except OSError as error:
    raise StoreError(f'no store at {path}: {error}') from error
  with translated(path):
    database = connect(path, timeout_s)
    try:
      is_new = retried(path, lambda: _identify(database, path))
      if not is_new:
        _check_whole(database, path)
      mode = retried(path, lambda: _set_mode(database))
      if mode != 'wal':
        raise StoreError(
          f'{path} cannot have a write-ahead log (mode {mode}): expected a '
          'path on a local file system'
        )
      # A commit is on the disk when it returns, power cut or not.
      database.execute('PRAGMA synchronous = FULL')
      retried(path, lambda: migrations.migrate(database, path))
    except BaseException:
      database.close()
      raise
    return database


def open_reader(path: pathlib.Path, timeout_s: float) -> sqlite3.Connection:
  """Opens a store that exists, to read."""
  with translated(path):
    database = connect(path, timeout_s)
    database.execute('PRAGMA query_only = ON')
    return database


def connect(path: pathlib.Path, timeout_s: float) -> sqlite3.Connection:
  database = sqlite3.connect(
    path, timeout=timeout_s, isolation_level=None, check_same_thread=False
  )
  database.execute('PRAGMA foreign_keys = ON')
  return database


class translated:
  """Raises errors of SQLite as errors of the store, with its path."""

  def __init__(self, path: pathlib.Path):
    self._path = path

  def __enter__(self) -> None:
    pass

  def __exit__(self, kind: object, error: object, trace: object) -> None:
    if isinstance(error, sqlite3.Error):
      raise _translate(self._path, error) from error


def retried(path: pathlib.Path, act: Callable[[], _Result]) -> _Result:
  """Returns what `act` returns, tried again while the file is locked.

  Raises:
    StoreBusy: it was locked at all attempts.
  """
  for attempt in range(ATTEMPTS):
    try:
      return act()
    except sqlite3.OperationalError as error:
      if _code(error) not in _BUSY:
        raise
      if attempt == ATTEMPTS - 1:
        raise StoreBusy(
          f'{path} was locked by another process at {ATTEMPTS} attempts, and '
          'nothing was stored: end the one that holds it, then send it again'
        ) from error
      time.sleep(_PAUSE_S * 2**attempt * random.uniform(0.5, 1.0))
  raise AssertionError('unreachable')


def _identify(database: sqlite3.Connection, path: pathlib.Path) -> bool:
  """Returns whether a database is empty.

  Raises:
    NotAStore, NewerSchema: see `open_writer`.
  """
  database.execute('BEGIN')
  try:
    (mark,) = database.execute('PRAGMA application_id').fetchone()
    (tables,) = database.execute(
      'SELECT COUNT(*) FROM sqlite_master'
    ).fetchone()
    if mark == migrations.APPLICATION_ID:
      migrations.version_of(database, path)
      return False
    if mark or tables:
      raise NotAStore(
        f'{path} is a database of something else: give another path'
      )
    return True
  finally:
    database.execute('ROLLBACK')


def _set_mode(database: sqlite3.Connection) -> str:
  return database.execute('PRAGMA journal_mode = WAL').fetchone()[0]


def _check_not_cut(path: pathlib.Path) -> None:
  """Refuses files that were cut, where SQLite would go on without a word.

  It deletes the log of an empty file, and reads zeros where the last page ends
  early. If there is a log, that page may be on its way from there.
  """
  log = path.with_name(f'{path.name}-wal')
  has_log = log.exists() and log.stat().st_size > 0
  if not path.is_file():
    return
  with open(path, 'rb') as file:
    header = file.read(18)
    size = os.fstat(file.fileno()).st_size
  if has_log and not size:
    raise DamagedStore(
      f'{path} is empty, but its log {log.name} is not: {_ADVICE}'
    )
  # Section 1.3 of https://sqlite.org/fileformat2.html; 1 stands for 65,536.
  page = int.from_bytes(header[16:18], 'big')
  page = 65_536 if page == 1 else page
  is_database = header.startswith(b'SQLite format 3\0') and page > 0
  if is_database and size % page and not has_log:
    raise DamagedStore(f'{path} is damaged (its end is missing): {_ADVICE}')


def _check_whole(database: sqlite3.Connection, path: pathlib.Path) -> None:
  (verdict,) = database.execute('PRAGMA quick_check(1)').fetchone()
  if verdict != 'ok':
    verdict = ' '.join(verdict.split())
    raise DamagedStore(f'{path} is damaged ({verdict}): {_ADVICE}')


_ADVICE = (
  'put a backup in its place, or move it away with its -wal and -shm files and '
  'start anew'
)


def _translate(path: pathlib.Path, error: sqlite3.Error) -> StoreError:
  code = _code(error)
  if code == sqlite3.SQLITE_NOTADB:
    return NotAStore(
      f'{path} is no store of feedback, or its beginning is damaged: give '
      'another path, or put a backup in its place'
    )
  if code == sqlite3.SQLITE_CORRUPT:
    return DamagedStore(f'{path} is damaged ({error}): {_ADVICE}')
  if code in _BUSY:
    return StoreBusy(f'{path} is locked by another process: try again')
  return StoreError(f'{path} cannot be used ({error})')


def _code(error: sqlite3.Error) -> int:
  return getattr(error, 'sqlite_errorcode', 0) & 0xFF
