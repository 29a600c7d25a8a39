import asyncio
import threading
import time

import pytest

from promptrl_jax.feedback.collector import Arrival, FeedbackCollector
from promptrl_jax.feedback.errors import UnknownResponse
from promptrl_jax.feedback.store import Store
from tests.feedback.build import (
  answer,
  pair,
  prefer,
  rate,
  signal,
  skip,
  undo,
)


@pytest.fixture
def store(tmp_path):
  with Store.open(tmp_path / 'f') as store:
    yield store


@pytest.fixture
def collector(store):
  return FeedbackCollector(store)


def test_without_a_person_the_wait_ends_with_none(collector):
  collector.show(answer('a'))
  for wait in (
    lambda: collector.wait('a', 0.3),
    lambda: asyncio.run(collector.wait_async('a', 0.3)),
  ):
    begin = time.monotonic()
    assert wait() is None
    assert 0.3 <= time.monotonic() - begin < 2
  assert collector.wait('a', 0) is None


def in_a_moment(act):
  thread = threading.Timer(0.1, act)
  thread.start()
  return thread


def test_a_rating_ends_the_wait(store, collector):
  collector.show(answer('a'))
  store.add_event(signal('1', 'a', 30, 'reading_time'))  # It does not.
  thread = in_a_moment(lambda: store.add_event(rate('2', 'a', 4)))
  begin = time.monotonic()
  # (0.75 + 0.5 * 1) / 1.5
  assert collector.wait('a', 60) == pytest.approx(1.25 / 1.5)
  assert time.monotonic() - begin < 10
  thread.join()


def test_asking_again_ends_the_wait_and_counts_against_the_answer(
  store, collector
):
  collector.show(answer('a'))
  store.add_event(signal('1', 'a', 0, 'asked_again'))
  assert collector.wait('a', 0.01) == 1.0  # After the time-out.
  store.add_event(undo('2', 'a', '1'))
  store.add_event(signal('3', 'a', 1, 'asked_again'))
  begin = time.monotonic()
  assert collector.wait('a', 60) == 0.0
  assert time.monotonic() - begin < 10


def test_what_another_process_stores_ends_an_asynchronous_wait(
  store, collector
):
  collector.show(*pair())
  with Store.open(store.path) as other:
    thread = in_a_moment(lambda: other.add_event(prefer('1', 'b')))

    async def both():
      return await asyncio.gather(
        collector.wait_async('a', 60), collector.wait_async('b', 60)
      )

    assert asyncio.run(both()) == [0.0, 1.0]
    thread.join()


def test_a_skip_ends_the_wait_without_a_score(store, collector):
  collector.show(answer('a'))
  store.add_event(skip('1', 'a'))
  assert collector.wait('a', 60) is None


def test_waiting_for_what_was_not_shown_is_an_error(collector):
  with pytest.raises(UnknownResponse, match="'a'"):
    collector.wait('a', 60)


def test_responses_that_are_shown_together_are_one_question(store, collector):
  collector.show(answer('x'), answer('y'))
  collector.show(answer('z'))
  assert [[r.id for r in q] for q in store.pending()] == [['x', 'y'], ['z']]
  with pytest.raises(ValueError, match='at least one response'):
    collector.show()


def test_late_feedback_updates_the_prompt_of_the_older_response(
  store, collector
):
  old, new = answer('old', version=1), answer('new', version=2)
  collector.show(old)
  collector.show(new)
  assert collector.arrived() == ([], 0)
  store.add_events(
    [rate('1', 'new', 5), signal('2', 'new', 15, 'reading_time')]
  )
  arrivals, since = collector.arrived()
  assert arrivals == [Arrival(new, pytest.approx(1.25 / 1.5))]
  store.add_event(rate('3', 'old', 2))
  arrivals, since = collector.arrived(since)
  assert arrivals == [Arrival(old, 0.25)]
  assert arrivals[0].response.version == 1
  assert collector.arrived(since) == ([], since)


def test_what_is_taken_back_arrives_for_both_sides(store, collector):
  collector.show(*pair())
  store.add_event(prefer('1', 'a'))
  arrivals, since = collector.arrived()
  assert [(a.response.id, a.score) for a in arrivals] == [
    ('a', 1.0),
    ('b', 0.0),
  ]
  store.add_event(undo('2', 'a', '1'))
  arrivals, _ = collector.arrived(since)
  assert [(a.response.id, a.score) for a in arrivals] == [
    ('a', None),
    ('b', None),
  ]
  assert collector.score('b') is None
