"""One thread that writes: what waits is committed in one transaction.

A caller is answered once the commit is on the disk. Since a commit takes as
long for hundreds of rows as for one, callers that come at once wait no longer
than a single one.
"""

from __future__ import annotations

import concurrent.futures
import os
import pathlib
import queue
import sqlite3
import threading
from collections.abc import Callable
from typing import Any

from promptrl_jax.feedback.database import open_writer, retried, translated
from promptrl_jax.feedback.errors import StoreClosed

_GROUP = 1000  # jobs in a transaction, at most

Job = Callable[[sqlite3.Connection], Any]
Future = concurrent.futures.Future


class Writer:
  """Runs jobs on the one connection that writes."""

  def __init__(self, path: pathlib.Path, timeout_s: float):
    """Opens the file, see `database.open_writer`, and starts the thread."""
    self._path = path
    self._database = open_writer(path, timeout_s)
    self._jobs: queue.SimpleQueue[tuple[Job, Future] | None]
    self._jobs = queue.SimpleQueue()
    self._lock = threading.Lock()
    self._is_closed = False
    self._process = os.getpid()
    self.committed = threading.Condition()  # Notified after each commit.
    self._thread = threading.Thread(
      target=self._run, name='feedback-writer', daemon=True
    )
    self._thread.start()

  def submit(self, job: Job) -> Future:
    """Returns what a job will return once its changes are on the disk.

    A job that raises changes nothing, and its future raises the same.

    Raises:
      StoreClosed: the writer was closed, or belongs to the parent process.
    """
    future: Future = Future()
    if os.getpid() != self._process:
      raise StoreClosed(
        f'{self._path} was opened before this process was forked: open it again'
      )
    with self._lock:
      if self._is_closed:
        raise StoreClosed(f'{self._path} was closed: open it again')
      self._jobs.put((job, future))
    return future

  def close(self) -> None:
    """Ends the thread once everything that was submitted is done."""
    if os.getpid() != self._process:
      return  # The thread and the connection are those of the parent.
    with self._lock:
      if not self._is_closed:
        self._is_closed = True
        self._jobs.put(None)
    self._thread.join()

  def _run(self) -> None:
    is_open = True
    while is_open:
      group = [self._jobs.get()]
      while len(group) < _GROUP:
        try:
          group.append(self._jobs.get_nowait())
        except queue.Empty:
          break
      is_open = None not in group
      # A job that nobody waits for any more is not begun.
      jobs = [
        job for job in group if job and job[1].set_running_or_notify_cancel()
      ]
      if jobs:
        self._answer(jobs)
    self._database.close()

  def _answer(self, jobs: list[tuple[Job, Future]]) -> None:
    try:
      outcomes = self._commit([job for job, _ in jobs])
    except BaseException as error:  # Whoever waits must hear of anything.
      for _, future in jobs:
        future.set_exception(error)
      return
    for (_, future), (result, error) in zip(jobs, outcomes, strict=True):
      if error is None:
        future.set_result(result)
      else:
        future.set_exception(error)
    with self.committed:
      self.committed.notify_all()

  def _commit(self, jobs: list[Job]) -> list[tuple[Any, Exception | None]]:
    """Runs jobs in one transaction; returns their results or errors."""
    database = self._database
    with translated(self._path):
      try:
        retried(self._path, lambda: database.execute('BEGIN IMMEDIATE'))
        outcomes = [self._attempt(job) for job in jobs]
        retried(self._path, lambda: database.execute('COMMIT'))
        return outcomes
      finally:
        if database.in_transaction:
          database.execute('ROLLBACK')

  def _attempt(self, job: Job) -> tuple[Any, Exception | None]:
    database = self._database
    database.execute('SAVEPOINT job')
    try:
      with translated(self._path):
        result, failure = job(database), None
    except Exception as error:  # One bad job does not fail the others.
      if not database.in_transaction:
        raise  # SQLite took back all of it: the disk is full, say.
      database.execute('ROLLBACK TO job')
      result, failure = None, error
    database.execute('RELEASE job')
    return result, failure
