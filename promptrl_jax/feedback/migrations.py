"""The schema of the store, as numbered steps from one version to the next.

Step i leads from version i to version i + 1, which `PRAGMA user_version` holds.
A step is never changed once it was released; a new one is added at the end.
"""

from __future__ import annotations

import pathlib
import sqlite3
import time
from collections.abc import Sequence

from promptrl_jax.feedback.errors import NewerSchema
from promptrl_jax.files import write_atomically

APPLICATION_ID = 0x50524C46  # Marks the file as a store of feedback: 'PRLF'.

_COMMON = """
  seq INTEGER PRIMARY KEY AUTOINCREMENT,
  id TEXT NOT NULL UNIQUE,
"""
MIGRATIONS: tuple[tuple[str, ...], ...] = (
  (
    f"""CREATE TABLE responses ({_COMMON}
      query TEXT NOT NULL,
      text TEXT NOT NULL,
      prompt_id TEXT NOT NULL,
      version INTEGER NOT NULL,
      model TEXT NOT NULL,
      session TEXT NOT NULL,
      shown_at REAL NOT NULL,
      question_id TEXT NOT NULL,
      candidates TEXT NOT NULL,  -- JSON
      shown_index INTEGER,
      metadata TEXT NOT NULL  -- JSON
    ) STRICT""",
    'CREATE INDEX responses_of_question ON responses (question_id)',
    f"""CREATE TABLE events ({_COMMON}
      kind TEXT NOT NULL,
      response_id TEXT NOT NULL REFERENCES responses (id),
      at REAL NOT NULL,
      received_at REAL NOT NULL,
      session TEXT NOT NULL,
      rater TEXT NOT NULL,
      comment TEXT NOT NULL,
      metadata TEXT NOT NULL,  -- JSON
      scale TEXT,
      value ANY,
      other_id TEXT REFERENCES responses (id),
      event_id TEXT REFERENCES events (id)
    ) STRICT""",
    'CREATE INDEX events_of_response ON events (response_id)',
    'CREATE INDEX events_of_other ON events (other_id) '
    'WHERE other_id IS NOT NULL',
    'CREATE INDEX undone_events ON events (event_id) '
    'WHERE event_id IS NOT NULL',
  ),
)


def migrate(
  database: sqlite3.Connection,
  path: pathlib.Path,
  migrations: Sequence[Sequence[str]] = MIGRATIONS,
) -> list[pathlib.Path]:
  """Brings a database to the last version, one transaction per step.

  Before each step the file is copied to `NAME.vVERSION.TIME.backup` beside it,
  unless it is new. Of several processes that start at once, one makes a step.

  Returns:
    The backups that were written.

  Raises:
    NewerSchema: the database has a version beyond the last step.
  """
  backups = []
  while version_of(database, path, migrations) < len(migrations):
    database.execute('BEGIN IMMEDIATE')
    try:
      version = version_of(database, path, migrations)
      if version < len(migrations):
        if version:
          stamp = time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())
          name = f'{path.name}.v{version}.{stamp}.backup'
          backup = write_atomically(path.with_name(name), database.serialize())
          backup.chmod(path.stat().st_mode & 0o777)
          backups.append(backup)
        for statement in migrations[version]:
          database.execute(statement)
        database.execute(f'PRAGMA application_id = {APPLICATION_ID}')
        database.execute(f'PRAGMA user_version = {version + 1}')
      database.execute('COMMIT')
    except BaseException:
      if database.in_transaction:
        database.execute('ROLLBACK')
      raise
  return backups


def version_of(
  database: sqlite3.Connection,
  path: pathlib.Path,
  migrations: Sequence[Sequence[str]] = MIGRATIONS,
) -> int:
  """Returns the version of a database; 0 is an empty one.

  Raises:
    NewerSchema: it is beyond the last step.
  """
  (version,) = database.execute('PRAGMA user_version').fetchone()
  if version > len(migrations):
    raise NewerSchema(
      f'{path} has schema {version}, and this version of promptrl_jax knows '
      f'{len(migrations)}: install a newer one, or give another path'
    )
  return version
