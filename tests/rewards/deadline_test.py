"""Functions that raise or hang cost their own sample and nothing else."""

import threading
import time
from concurrent.futures import Future

import pytest

from promptrl_jax.rewards import deadline


def settled(value):
  future = Future()
  future.set_result(value)
  return future


def test_values_come_back_in_order():
  futures = [deadline.then(settled(k), lambda x: x * x) for k in range(20)]
  outcomes = deadline.gather(futures, 5)
  assert [o.value for o in outcomes] == [k * k for k in range(20)]
  assert not any(o.error for o in outcomes)


def test_an_exception_is_told_by_name():
  def fail(x):
    raise KeyError(x)

  (outcome,) = deadline.gather([deadline.then(settled('a'), fail)], 5)
  assert outcome == deadline.Settled(error="KeyError: 'a'")


def test_a_failure_before_is_passed_on_without_a_call():
  before, calls = Future(), []
  after = deadline.then(before, calls.append)
  before.set_exception(RuntimeError('closed'))
  (outcome,) = deadline.gather([after], 5)
  assert outcome.error == 'RuntimeError: closed'
  assert not calls


def test_what_hangs_is_given_up_and_the_others_are_not():
  release = threading.Event()
  try:
    hung = deadline.then(settled(0), lambda _: release.wait())
    futures = [deadline.then(settled(1), lambda x: x), hung]
    started = time.monotonic()
    first, second = deadline.gather(futures, 0.3)
    assert 0.25 < time.monotonic() - started < 5
    assert first.value == 1
    assert '0.3 s' in second.error
  finally:
    release.set()


def test_slow_ones_that_go_on_are_waited_for():
  def slow(k):
    time.sleep(0.15 * k)
    return k

  futures = [deadline.then(settled(k), slow) for k in range(1, 7)]
  outcomes = deadline.gather(futures, 0.6)  # all of them take 0.9 s
  assert [o.value for o in outcomes] == list(range(1, 7))


def test_starting_does_not_wait():
  release = threading.Event()
  started = time.monotonic()
  after = deadline.then(settled(0), lambda _: release.wait(10))
  assert time.monotonic() - started < 1
  assert not after.done()
  release.set()
  assert after.result(timeout=5) is True


def test_nothing_to_wait_for():
  assert deadline.gather([], 1) == []


@pytest.mark.parametrize('error', [SystemExit, KeyboardInterrupt])
def test_an_exit_in_a_thread_is_a_failure_like_any_other(error):
  def leave(_):
    raise error('bye')

  (outcome,) = deadline.gather([deadline.then(settled(0), leave)], 5)
  assert outcome.error == f'{error.__name__}: bye'
