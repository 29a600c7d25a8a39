"""Futures of the pool: order, sharing, cancelling, closing."""

from __future__ import annotations

import concurrent.futures
import pathlib
import sys
import threading
import time

import pytest

from promptrl_jax.execution import ExecutionPool, Limits, Program

TESTS = ('assert f(1) == 1',)
RIGHT = Program('def f(x): return x', TESTS)
LONG = Limits(cpu_s=100, idle_s=100)


def sleeper(seconds: float, mark: str = '') -> Program:
  code = f'import time\ntime.sleep({seconds})\ndef f(x): return x #{mark}'
  return Program(code, TESTS, limits=LONG)


def appender(path: pathlib.Path) -> Program:
  """A program that appends to a file each time it is run."""
  code = f"""
with open({str(path)!r}, 'a') as file: file.write('x')
def f(x): return x"""
  return Program(code, TESTS)


def test_futures_come_in_input_order_and_are_done_as_results_arrive(pool):
  programs = [sleeper(0.5), Program('def f(x): return 0', TESTS), RIGHT]
  start = time.monotonic()
  futures = pool.submit(programs)
  assert time.monotonic() - start < 0.4
  arrived = [
    futures.index(future)
    for future in concurrent.futures.as_completed(futures, timeout=20)
  ]
  assert sorted(arrived) == [0, 1, 2]
  assert arrived[-1] == 0
  assert [future.result().status for future in futures] == [
    'passed',
    'failed',
    'passed',
  ]


def test_equal_programs_share_a_result_and_not_a_future(pool):
  futures = pool.submit([RIGHT, Program(RIGHT.code, [*TESTS]), RIGHT])
  assert len(set(futures)) == 3
  results = [future.result(20) for future in futures]
  assert results[0].passed
  assert results[1] is results[0]
  assert results[2] is results[0]


def test_a_future_is_cancelled_before_its_program_starts(tmp_path):
  path = tmp_path / 'runs'
  with ExecutionPool(workers=1) as pool:
    (blocked,) = pool.submit([sleeper(0.5)])
    dropped, last = pool.submit([appender(path), RIGHT])
    assert dropped.cancel()
    assert last.result(20).passed
    assert blocked.result(20).passed
    assert not blocked.cancel()
    assert dropped in concurrent.futures.wait([dropped], timeout=20).done
  assert not path.exists()
  with pytest.raises(concurrent.futures.CancelledError):
    dropped.result(0)


def test_cancelling_one_of_two_equal_programs_leaves_the_other(pool):
  pool.submit([sleeper(0.3, 'a'), sleeper(0.3, 'b')])
  first, second = pool.submit([RIGHT, RIGHT])
  assert first.cancel()
  assert second.result(20).passed


def test_close_fails_what_is_not_done():
  pool = ExecutionPool(workers=1)
  (done,) = pool.submit([RIGHT])
  assert done.result(20).passed
  futures = pool.submit([sleeper(100), RIGHT, sleeper(100, 'again')])
  cancelled = futures.pop()
  cancelled.cancel()
  pool.close()
  assert concurrent.futures.wait(futures, timeout=0).not_done == set()
  for future in futures:
    with pytest.raises(RuntimeError, match='the pool was closed before'):
      future.result(0)
  assert cancelled.cancelled()
  assert done.result(0).passed
  with pytest.raises(RuntimeError, match='the pool is closed'):
    pool.submit([RIGHT])


def test_a_callback_may_submit_also_while_the_pool_closes():
  seen = []

  def again(future):
    try:
      seen.extend(pool.submit([RIGHT]))
    except RuntimeError as error:
      seen.append(str(error))

  pool = ExecutionPool(workers=1)
  (future,) = pool.submit([RIGHT])
  future.add_done_callback(again)
  future.result(20)
  deadline = time.monotonic() + 20
  while not seen and time.monotonic() < deadline:
    time.sleep(0.01)
  assert seen.pop().result(20).passed
  (future,) = pool.submit([sleeper(100)])
  future.add_done_callback(again)
  closer = threading.Thread(target=pool.close, daemon=True)
  closer.start()
  closer.join(20)
  assert not closer.is_alive()
  assert seen == ['the pool is closed; make a new one']


def test_two_threads_may_close_and_both_find_everything_gone():
  pool = ExecutionPool(workers=2)
  pool.submit([sleeper(100), sleeper(100, 'again')])
  threads = [threading.Thread(target=pool.close) for _ in range(2)]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join(20)
  assert not any(thread.is_alive() for thread in threads)


def test_a_worker_that_does_not_start_fails_the_future(monkeypatch):
  monkeypatch.setattr(sys, 'executable', '/bin/false')
  with ExecutionPool(workers=1) as pool:
    futures = pool.submit([RIGHT, Program('', TESTS)])
    with pytest.raises(RuntimeError, match='a worker failed.*did not start'):
      futures[0].result(20)
    assert futures[1].result(0).status == 'no_code'


def test_an_interrupted_run_drops_what_is_queued(tmp_path, monkeypatch):
  path = tmp_path / 'runs'

  def interrupted(self, timeout=None):
    raise KeyboardInterrupt

  with ExecutionPool(workers=1) as pool:
    pool.submit([sleeper(0.3)])
    with monkeypatch.context() as patch:
      patch.setattr(concurrent.futures.Future, 'result', interrupted)
      with pytest.raises(KeyboardInterrupt):
        pool.run([appender(path)])
    assert pool.run([RIGHT])[0].passed
  assert not path.exists()
