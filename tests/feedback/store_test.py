import asyncio
import os
import sqlite3
import threading

import pytest

from promptrl_jax.feedback import errors
from promptrl_jax.feedback.store import Progress, Store
from tests.feedback.build import (
  answer,
  candidate,
  correct,
  pair,
  prefer,
  rate,
  signal,
  skip,
  undo,
)


@pytest.fixture
def store(tmp_path):
  with Store.open(tmp_path / 'new folder' / 'feedback.sqlite') as store:
    yield store


EVENTS = [
  rate('1', 'a', 7.5, 'rating_1_10', comment='zu lang \U0001f600\0'),
  rate('2', 'a', -1, 'sign', session='s', rater='r', metadata={'left': 'b'}),
  signal('3', 'b', 12.25, 'reading_time'),
  prefer('4', 'tie'),
  correct('5', 'b', 'better\n'),
  skip('6', 'a', comment='no idea'),
  undo('7', 'a', '2'),
]


def test_each_kind_comes_back_as_it_was_after_the_file_was_closed(tmp_path):
  responses = [
    answer(
      'a',
      question_id='q',
      version=4,
      model='adapter 2',
      session='s',
      candidates=(candidate('x', 0.5), candidate('abcd', 0.5, version=4)),
      shown_index=1,
      metadata={'logps': [-0.25]},
    ),
    answer('b', question_id='q'),
  ]
  with Store.open(tmp_path / 'f') as store:
    assert store.add_responses(responses) == [True, True]
    assert store.add_events(EVENTS) == [True] * 7
  with Store.open(tmp_path / 'f') as store:
    assert store.responses() == responses
    assert store.responses(session='s') == responses[:1]
    assert store.response('a') == responses[0]
    assert store.events() == EVENTS
    assert store.events('b') == [EVENTS[i] for i in (2, 3, 4)]
    assert store.event('5') == EVENTS[4]
    entries = store.since(5)
    assert [(e.seq, e.event) for e in entries] == [
      (6, EVENTS[5]),
      (7, EVENTS[6]),
    ]
    assert entries[0].received_at > 1.7e9


def test_what_is_sent_twice_is_stored_once(store):
  store.add_responses(pair())
  assert store.add_responses(pair()) == [False, False]
  assert store.add_event(EVENTS[0]) and not store.add_event(EVENTS[0])
  later = rate('9', 'a', 2)
  assert store.add_events([EVENTS[0], later, later]) == [False, True, False]
  assert store.events() == [EVENTS[0], later]


@pytest.mark.parametrize(
  ('event', 'error', 'named'),
  [
    (rate('9', 'c', 4), errors.UnknownResponse, "'c'"),
    (prefer('9', 'a', other_id='c'), errors.UnknownResponse, "'c'"),
    (prefer('9', 'a', other_id='alone'), errors.MalformedFeedback, 'alone'),
    (rate('9', 'a', 6), errors.OutOfScale, 'from 1 to 5'),
    (rate('9', 'a', 6, 'stars'), errors.OutOfScale, 'stars'),
    (rate('1', 'a', 5), errors.IdTaken, "'1'"),
    (undo('9', 'a', '8'), errors.UnknownEvent, "'8'"),
    (undo('9', 'b', '1'), errors.MalformedFeedback, "'1'"),
    (undo('9', 'a', 'undone'), errors.MalformedFeedback, 'undone'),
    ({'id': '9'}, errors.MalformedFeedback, 'Event'),
  ],
)
def test_bad_events_are_refused_with_all_that_came_with_them(
  store, event, error, named
):
  store.add_responses([*pair(), answer('alone')])
  kept = [rate('1', 'a', 4), rate('2', 'a', 4), undo('undone', 'a', '2')]
  store.add_events(kept)
  with pytest.raises(error, match=named) as raised:
    store.add_events([rate('10', 'a', 1), event])
  assert '\n' not in str(raised.value)
  assert store.events() == kept


def test_a_response_id_stands_for_one_response(store):
  store.add_response(answer('a'))
  with pytest.raises(errors.IdTaken, match="response 'a'"):
    store.add_response(answer('a', text='another'))
  assert store.responses() == [answer('a')]


def test_one_bad_event_does_not_fail_those_that_wait_with_it(store):
  store.add_responses(pair())
  events = [rate(str(i), 'x' if i == 50 else 'a', 4) for i in range(100)]
  futures = [store.submit_events([event]) for event in events]
  for i, future in enumerate(futures):
    if i == 50:
      assert isinstance(future.exception(), errors.UnknownResponse)
    else:
      assert future.result() == [True]
  assert store.events() == events[:50] + events[51:]


def test_what_waits_is_committed_in_few_transactions(store):
  store.add_response(answer('a'))
  gate = threading.Event()
  store._writer.submit(lambda database: gate.wait())
  futures = [store.submit_events([rate(str(i), 'a', 4)]) for i in range(500)]
  commits = []
  database = sqlite3.connect(store.path)
  gate.set()
  while not commits or commits[-1] < 500:
    (count,) = database.execute('SELECT COUNT(*) FROM events').fetchone()
    commits += [count] if count not in commits else []
  # A part of them may have been taken together with what held them up.
  assert len([count for count in commits if count]) <= 2
  assert all(future.done() for future in futures) or futures[-1].result()
  database.close()


def test_events_are_awaited_without_blocking(store):
  store.add_response(answer('a'))

  async def rate_many():
    futures = [store.submit_events([rate(str(i), 'a', 4)]) for i in range(20)]
    return await asyncio.gather(*map(asyncio.wrap_future, futures))

  assert asyncio.run(rate_many()) == [[True]] * 20


def test_questions_are_pending_until_any_of_their_responses_is_settled(store):
  store.add_responses([*pair(), answer('c', session='s'), answer('d')])
  assert store.pending() == [
    tuple(pair()),
    (store.response('c'),),
    (answer('d'),),
  ]
  assert store.pending(limit=1) == [tuple(pair())]
  assert store.pending(session='s') == [(store.response('c'),)]
  store.add_event(signal('1', 'b', 3, 'reading_time'))
  assert store.progress() == Progress(questions=3, settled=0)
  store.add_events([prefer('2', 'b'), skip('3', 'd')])
  assert store.pending() == [(store.response('c'),)]
  assert store.progress() == Progress(3, 2)
  assert store.progress(session='s') == Progress(1, 0)
  store.add_event(undo('4', 'a', '2'))
  assert [len(q) for q in store.pending()] == [2, 1]
  assert store.progress() == Progress(3, 1)


def test_what_is_asked_again_waits_for_another_answer(store):
  store.add_responses([answer('a', session='s'), answer('b', query='other')])
  store.add_event(signal('1', 'a', 0, 'asked_again'))
  assert store.asked_again() == [] and store.progress().settled == 0
  store.add_event(signal('2', 'a', 1, 'asked_again'))
  assert [r.id for r in store.asked_again()] == ['a']
  assert store.asked_again('t') == []
  assert [q[0].id for q in store.pending()] == ['b']
  store.add_event(undo('3', 'a', '2'))
  assert store.asked_again() == [] and store.progress().settled == 0
  # Of two tabs both may ask.
  store.add_events([signal(i, 'a', 1, 'asked_again') for i in '45'])
  store.add_response(answer('elsewhere', session='t'))
  assert [r.id for r in store.asked_again('s')] == ['a']
  store.add_response(answer('c', session='s'))
  assert store.asked_again('s') == []
  assert [q[0].id for q in store.pending('s')] == ['c']


def test_two_answers_that_are_asked_again_wait_as_one_question(store):
  store.add_responses(pair())
  store.add_events([signal(i, i, 1, 'asked_again') for i in 'ab'])
  assert [r.id for r in store.asked_again()] == ['a', 'b']
  assert store.progress() == Progress(1, 1)


def test_a_store_that_is_locked_says_so_and_goes_on_afterwards(tmp_path):
  path = tmp_path / 'f'
  with Store.open(path, timeout_s=0.01) as store:
    store.add_response(answer('a'))
    other = sqlite3.connect(path, isolation_level=None)
    other.execute('BEGIN IMMEDIATE')
    with pytest.raises(errors.StoreBusy, match='send it again'):
      store.add_event(rate('1', 'a', 4))
    assert store.events() == []  # Readers do not wait.
    other.execute('COMMIT')
    other.close()
    assert store.add_event(rate('1', 'a', 4))


def test_a_full_disk_loses_nothing_that_was_acknowledged(store):
  store.add_response(answer('a'))
  kept = rate('1', 'a', 4)
  store.add_event(kept)
  limit = 'PRAGMA max_page_count = {}'
  store._writer.submit(lambda db: db.execute(limit.format(1)) and None).result()
  big = rate('2', 'a', 4, comment='x' * 100_000)
  with pytest.raises(errors.StoreError, match='full'):
    store.add_event(big)
  assert store.events() == [kept]
  store._writer.submit(
    lambda db: db.execute(limit.format(10**6)) and None
  ).result()
  assert store.add_event(big)


def test_a_closed_store_stored_what_was_submitted_and_takes_no_more(tmp_path):
  store = Store.open(tmp_path / 'f')
  store.add_response(answer('a'))
  futures = [store.submit_events([rate(str(i), 'a', 4)]) for i in range(100)]
  store.close()
  store.close()
  assert all(future.result() == [True] for future in futures)
  for use in (store.events, lambda: store.add_event(rate('x', 'a', 4))):
    with pytest.raises(errors.StoreClosed, match='open it again'):
      use()


def test_a_forked_process_is_told_to_open_the_store_itself(store):
  store.add_response(answer('a'))
  pid = os.fork()
  if not pid:
    code = 1
    try:
      store.close()
      for use in (store.events, lambda: store.add_event(rate('x', 'a', 4))):
        with pytest.raises(errors.StoreClosed, match='forked'):
          use()
      code = 0
    finally:
      os._exit(code)
  assert os.waitpid(pid, 0)[1] == 0
  assert store.add_event(rate('x', 'a', 4))


def test_two_stores_merge_without_duplicates_and_keep_who_rated(tmp_path):
  with (
    Store.open(tmp_path / 'mine') as mine,
    Store.open(tmp_path / 'theirs') as theirs,
  ):
    for store in (mine, theirs):
      store.add_responses([answer('a', question_id='q')])
      store.add_events([rate('both', 'a', 1, 'thumbs', rater='anna')])
    mine.add_events([rate('mine', 'a', 0, 'thumbs', rater='anna')])
    theirs.add_responses([answer('b', question_id='q')])
    compared, undone = prefer('compared', 'b'), undo('undone', 'a', 'both')
    theirs.add_events(
      [compared, rate('theirs', 'b', 1, 'thumbs', rater='bo'), undone]
    )
    assert mine.merge(theirs) == (1, 3)
    assert mine.merge(theirs) == (0, 0)
    assert [event.id for event in mine.events()] == [
      *('both', 'mine', 'compared', 'theirs', 'undone')
    ]
    assert mine.event('theirs').rater == 'bo'
    assert [r.id for r in mine.responses()] == ['a', 'b']


def test_an_id_with_two_meanings_stops_a_merge_before_it_begins(tmp_path):
  with (
    Store.open(tmp_path / 'mine') as mine,
    Store.open(tmp_path / 'theirs') as theirs,
  ):
    mine.add_responses([answer('a')])
    mine.add_events([rate('1', 'a', 1, 'thumbs')])
    theirs.add_responses([answer('new'), answer('a')])
    theirs.add_events([rate('1', 'a', 0, 'thumbs')])
    with pytest.raises(errors.IdTaken, match="event '1'"):
      mine.merge(theirs)
    assert [r.id for r in mine.responses()] == ['a']
    assert mine.event('1').value == 1
