import os
import sqlite3
import threading

import pytest

from promptrl_jax.feedback import errors, migrations
from promptrl_jax.feedback.store import Store
from tests.feedback.build import answer, rate

EVENTS = [rate(str(i), 'a', 4, comment='x' * 300) for i in range(100)]
NEXT = (
  *migrations.MIGRATIONS,
  ('ALTER TABLE events ADD COLUMN trained INTEGER NOT NULL DEFAULT 0',),
)


def fill(path):
  with Store.open(path) as store:
    store.add_response(answer('a'))
    store.add_events(EVENTS)


def query(path, sql):
  database = sqlite3.connect(path)
  try:
    with database:
      return database.execute(sql).fetchall()
  finally:
    database.close()


def refused(path, error, named):
  """Opening is refused in one line, and no file is changed or added."""
  folder = path.parent
  before = {p.name: p.is_file() and p.read_bytes() for p in folder.iterdir()}
  with pytest.raises(error, match=named) as raised:
    Store.open(path)
  assert str(path) in str(raised.value) and '\n' not in str(raised.value)
  after = {p.name: p.is_file() and p.read_bytes() for p in folder.iterdir()}
  assert after == before


def test_the_file_is_set_up_for_power_cuts_and_readers(tmp_path):
  fill(tmp_path / 'f')
  with Store.open(tmp_path / 'f') as store:

    def setting(name):
      return store._writer.submit(
        lambda db: db.execute(f'PRAGMA {name}').fetchone()[0]
      ).result()

    assert setting('journal_mode') == 'wal'
    assert setting('synchronous') == 2  # FULL
    assert setting('foreign_keys') == 1
    with store.read() as database:
      tables = database.execute('PRAGMA table_list').fetchall()
      strict = {row[1] for row in tables if row[5]}
      with pytest.raises(sqlite3.OperationalError, match='readonly'):
        database.execute('DELETE FROM events')
  assert strict == {'responses', 'events'}
  assert (tmp_path / 'f').stat().st_mode & 0o777 == 0o600


def test_a_store_of_a_newer_schema_is_left_alone(tmp_path):
  fill(tmp_path / 'f')
  query(tmp_path / 'f', 'PRAGMA user_version = 7')
  refused(tmp_path / 'f', errors.NewerSchema, 'schema 7')


def test_a_file_of_something_else_is_left_alone(tmp_path):
  (tmp_path / 'text').write_text('rating,comment\n4,good\n' * 100)
  refused(tmp_path / 'text', errors.NotAStore, 'no store of feedback')
  query(tmp_path / 'other', 'CREATE TABLE users (name TEXT)')
  refused(tmp_path / 'other', errors.NotAStore, 'something else')
  query(tmp_path / 'marked', 'PRAGMA application_id = 5')
  refused(tmp_path / 'marked', errors.NotAStore, 'something else')
  (tmp_path / 'folder').mkdir()
  refused(tmp_path / 'folder', errors.StoreError, 'cannot be used')


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
  (tmp_path / 'file').touch()
  with pytest.raises(errors.StoreError, match='file'):
    Store.open(tmp_path / 'file' / 'f')


@pytest.mark.parametrize('size', [50, 500, 4096, 20_000, -1])
def test_a_truncated_store_is_refused(tmp_path, size):
  fill(tmp_path / 'f')
  whole = (tmp_path / 'f').stat().st_size
  assert whole > 30_000
  os.truncate(tmp_path / 'f', size if size > 0 else whole + size)
  refused(tmp_path / 'f', errors.StoreError, 'damaged')


def test_a_store_that_is_empty_beside_its_log_is_refused(tmp_path):
  # SQLite itself would delete the log and all that it holds.
  store = Store.open(tmp_path / 'f')
  store.add_response(answer('a'))
  folder = tmp_path / 'copy'
  folder.mkdir()
  log = (tmp_path / 'f-wal').read_bytes()
  store.close()
  (folder / 'f-wal').write_bytes(log)
  (folder / 'f').touch()
  refused(folder / 'f', errors.DamagedStore, 'its log f-wal is not')


def test_damage_in_the_middle_is_found(tmp_path):
  fill(tmp_path / 'f')
  with open(tmp_path / 'f', 'r+b') as file:
    file.seek(4096 * 4)
    file.write(b'\xff' * 4096 * 2)
  refused(tmp_path / 'f', errors.DamagedStore, 'damaged')


def test_many_that_open_a_new_store_at_once_all_get_it(tmp_path):
  for i in range(5):
    path, done = tmp_path / str(i), []

    def use(name, path=path, done=done):
      with Store.open(path) as store:
        done.append(store.add_response(answer(name)))

    threads = [threading.Thread(target=use, args=(str(j),)) for j in range(8)]
    for thread in threads:
      thread.start()
    for thread in threads:
      thread.join()
    assert done == [True] * 8


def test_a_migration_keeps_everything_and_a_backup_of_before(tmp_path):
  path = tmp_path / 'f'
  fill(path)
  database = sqlite3.connect(path, isolation_level=None)
  (backup,) = migrations.migrate(database, path, NEXT)
  assert migrations.migrate(database, path, NEXT) == []
  database.close()
  assert query(path, 'PRAGMA user_version') == [(2,)]
  assert query(path, 'SELECT COUNT(*), SUM(trained) FROM events') == [(100, 0)]
  refused(path, errors.NewerSchema, 'schema 2')
  assert backup.name.startswith('f.v1.') and backup.suffix == '.backup'
  assert backup.stat().st_mode & 0o777 == 0o600
  with Store.open(backup) as store:
    assert store.events() == EVENTS


def test_a_migration_that_fails_changes_nothing(tmp_path):
  path = tmp_path / 'f'
  fill(path)
  broken = (*NEXT[:-1], (*NEXT[-1], 'CREATE TABLE events (id TEXT)'))
  database = sqlite3.connect(path, isolation_level=None)
  with pytest.raises(sqlite3.OperationalError, match='already exists'):
    migrations.migrate(database, path, broken)
  database.close()
  with Store.open(path) as store:
    assert store.events() == EVENTS


def test_of_two_that_migrate_at_once_one_does(tmp_path):
  path = tmp_path / 'f'
  fill(path)
  backups = []

  def migrate():
    database = sqlite3.connect(path, timeout=10, isolation_level=None)
    backups.append(migrations.migrate(database, path, NEXT))
    database.close()

  threads = [threading.Thread(target=migrate) for _ in range(4)]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  assert sorted(map(len, backups)) == [0, 0, 0, 1]
