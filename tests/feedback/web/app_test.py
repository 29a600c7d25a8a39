"""The routes and what they refuse, over HTTP without a network."""

import json
import threading
import time

import pytest

from promptrl_jax.feedback import errors, events
from promptrl_jax.feedback.store import Store
from promptrl_jax.feedback.web.limits import Limits
from tests.feedback.build import answer, candidate, pair, prefer, rate, undo

pytest.importorskip('starlette', reason='the extra serve is not installed')
from starlette.testclient import TestClient

from promptrl_jax.feedback.web.app import make_app

TOKEN = 'a-token-of-the-tests'
BASE = 'http://127.0.0.1:8321'
BEARER = {'authorization': f'Bearer {TOKEN}'}
LINK = f'/?token={TOKEN}'


@pytest.fixture
def store(tmp_path):
  with Store.open(tmp_path / 'f') as store:
    yield store


def client_of(store, headers=BEARER, **options):
  app = make_app(store, token=TOKEN, **options)
  return TestClient(app, BASE, headers=headers, follow_redirects=False)


@pytest.fixture
def client(store):
  with client_of(store) as client:
    yield client


def post(client, *given, headers=None):
  fields = [e if isinstance(e, dict) else events.to_fields(e) for e in given]
  # Not `json=`: it cannot send half of a surrogate pair.
  return client.post(
    '/api/events',
    content=json.dumps({'events': fields}),
    headers={'content-type': 'application/json'} | (headers or {}),
  )


def refused(reply, status, error, part=''):
  """Asserts that a reply is of a type, and its message one line."""
  fields = reply.json()
  assert (reply.status_code, fields['error']) == (status, error), fields
  assert fields.keys() == {'error', 'message'}
  assert part in fields['message'] and '\n' not in fields['message']
  return True


def test_a_rating_is_posted_and_read_from_the_store(store, client):
  store.add_response(answer('r1'))
  rating = rate('e1', 'r1', 4, comment='good', metadata={'first': 'r1'})
  assert post(client, rating).json() == {'stored': ['e1'], 'known': []}
  assert post(client, rating).json() == {'stored': [], 'known': ['e1']}
  assert store.events('r1') == [rating]


def test_questions_are_blind(store, client):
  response = answer(
    'r1',
    text='seen',
    prompt_id='hidden-prompt',
    version=77,
    model='hidden-model',
    candidates=(
      candidate('hidden', 0.25, score=0.125),
      events.Candidate(
        text='seen', prompt_id='hidden-prompt', version=77, propensity=0.75
      ),
    ),
    shown_index=1,
    metadata={'secret': 'hidden-data'},
  )
  store.add_response(response)
  reply = client.get('/api/questions')
  fields = reply.json()
  assert fields.pop('tag')
  assert fields == {
    'questions': [
      {
        'question_id': 'r1',
        'query': 'q',
        'responses': [{'id': 'r1', 'text': 'seen'}],
      }
    ],
    'progress': {'questions': 1, 'settled': 0},
  }
  assert not any(t in reply.text for t in ('hidden', '77', '0.25', '0.125'))


def test_the_order_of_two_answers_is_not_the_order_of_the_store(store, client):
  b, a = reversed(pair())
  store.add_responses([b, a])
  (question,) = client.get('/api/questions').json()['questions']
  assert [r['id'] for r in question['responses']] == ['a', 'b']


def test_what_is_answered_leaves_and_what_is_undone_returns(store, client):
  store.add_responses([answer('x'), *pair()])
  post(client, rate('1', 'x', 2), prefer('2', 'b'))
  reply = client.get('/api/questions').json()
  assert reply['questions'] == []
  assert reply['progress'] == {'questions': 2, 'settled': 2}
  post(client, undo('3', 'x', '1'))
  reply = client.get('/api/questions?limit=1').json()
  assert [q['question_id'] for q in reply['questions']] == ['x']


def test_a_request_waits_for_the_next_question(store, client):
  tag = client.get('/api/questions').json()['tag']
  begin = time.monotonic()
  reply = client.get('/api/questions', params={'seen': tag, 'wait_s': 0.3})
  assert 0.3 <= time.monotonic() - begin < 5
  assert reply.json()['tag'] == tag
  thread = threading.Timer(0.2, lambda: store.add_response(answer('late')))
  thread.start()
  begin = time.monotonic()
  reply = client.get('/api/questions', params={'seen': tag, 'wait_s': 25})
  assert reply.json()['questions'][0]['question_id'] == 'late'
  assert time.monotonic() - begin < 5
  thread.join()


def test_a_page_of_a_session_knows_no_other(store):
  store.add_responses([answer('mine', session='s'), answer('other')])
  store.add_responses([answer('a', session='s', question_id='q')])
  store.add_responses([answer('b', question_id='q')])
  with client_of(store, session='s') as client:
    shown = client.get('/api/questions').json()
    assert [q['question_id'] for q in shown['questions']] == ['mine', 'q']
    assert [len(q['responses']) for q in shown['questions']] == [1, 1]
    reply = client.get('/api/questions?session=t')
    assert refused(reply, 404, 'UnknownSession')
    for event in (rate('1', 'other', 3), prefer('2', 'a')):
      assert refused(post(client, event), 404, 'UnknownResponse', 'this page')
    assert post(client, rate('3', 'mine', 3)).status_code == 200
  with client_of(store) as client:
    shown = client.get('/api/questions?session=s').json()
    assert shown['progress'] == {'questions': 2, 'settled': 1}


RATING = events.to_fields(rate('new', 'r', 3))


@pytest.mark.parametrize(
  ('event', 'status', 'error'),
  [
    (RATING | {'value': 6}, 422, 'OutOfScale'),
    (RATING | {'scale': 'stars'}, 422, 'OutOfScale'),
    (RATING | {'response_id': 'none'}, 404, 'UnknownResponse'),
    (events.to_fields(undo('u', 'r', 'none')), 404, 'UnknownEvent'),
    (RATING | {'id': 'taken'}, 409, 'IdTaken'),
    (RATING | {'kind': 'nothing'}, 400, 'MalformedFeedback'),
    (RATING | {'value': None}, 400, 'MalformedFeedback'),
    (RATING | {'more': 1}, 400, 'MalformedFeedback'),
    (RATING | {'comment': '\ud800'}, 400, 'MalformedFeedback'),
    ({}, 400, 'MalformedFeedback'),
  ],
)
def test_a_bad_event_is_refused_with_all_of_its_request(
  store, client, event, status, error
):
  store.add_response(answer('r'))
  store.add_event(rate('taken', 'r', 1))
  good = events.to_fields(rate('good', 'r', 5))
  assert refused(post(client, good, event), status, error)
  assert [e.id for e in store.events()] == ['taken']


@pytest.mark.parametrize(
  'body',
  [
    b'',
    b'{',
    b'\xff\xfe',
    b'[]',
    b'{"events": []}',
    b'{"events": {}}',
    b'{"events": [1]}',
    b'{"events": [], "more": 1}',
    b'{"events": [NaN]}',
    b'[' * 100_000,
    json.dumps({'events': [RATING] * 101}).encode(),
  ],
  ids=lambda body: repr(body[:20]),
)
def test_malformed_json_is_refused(client, body):
  kind = {'content-type': 'application/json; charset=utf-8'}
  reply = client.post('/api/events', content=body, headers=kind)
  assert refused(reply, 400, 'MalformedFeedback')


def test_what_is_not_marked_as_json_is_refused(client):
  for kind in ('text/plain', 'application/x-www-form-urlencoded', ''):
    headers = {'content-type': kind}
    reply = client.post('/api/events', content=b'{}', headers=headers)
    assert refused(reply, 415, 'NotJson', 'application/json')


@pytest.mark.parametrize('query', ['wait_s=-1', 'wait_s=nan', 'limit=many'])
def test_a_number_that_is_none_is_refused(client, query):
  reply = client.get(f'/api/questions?{query}')
  assert refused(reply, 400, 'MalformedFeedback', query.split('=')[0])


@pytest.mark.parametrize(
  ('error', 'status'),
  [
    (errors.StoreBusy, 503),
    (errors.StoreClosed, 503),
    (errors.DamagedStore, 500),
  ],
)
def test_a_store_that_fails_says_so(store, client, monkeypatch, error, status):
  def fail(events):
    raise error('locked:\n by another')

  store.add_response(answer('r'))
  monkeypatch.setattr(store, 'add_events', fail)
  reply = post(client, rate('1', 'r', 3))
  assert refused(reply, status, error.__name__, 'locked: by another')
  assert ('retry-after' in reply.headers) == (status == 503)


def test_unknown_paths_and_methods_are_refused(client):
  assert refused(client.get('/api/nothing'), 404, 'UnknownPath')
  assert refused(client.get('/page.html'), 404, 'UnknownPath')
  assert refused(client.get('/../app.py'), 404, 'UnknownPath')
  reply = client.get('/api/events')
  assert refused(reply, 405, 'WrongMethod')
  assert reply.headers['allow'] == 'POST'


def test_the_page_and_its_files_are_served(client):
  page = client.get('/')
  assert page.headers['content-type'] == 'text/html; charset=utf-8'
  assert '<script' not in page.text.replace('<script type="module" src=', '')
  assert 'style=' not in page.text
  script = client.get('/page.js')
  assert script.headers['content-type'].startswith('text/javascript')
  assert client.get('/page.css').headers['content-type'].startswith('text/css')


def test_settings_name_the_scales_and_hide_the_path(store):
  with client_of(store, scales=['rating_1_10']) as client:
    settings = client.get('/api/settings').json()
  assert [s['name'] for s in settings['scales']] == ['rating_1_10']
  assert settings['can_ask_again'] is False
  assert str(store.path.parent) not in json.dumps(settings)


@pytest.mark.parametrize(
  ('options', 'message'),
  [
    ({'token': 'short'}, 'token of 5 characters: expected 16'),
    ({'token': 'with a space in it!'}, 'letters, digits'),
    ({'scales': ()}, 'expected some of thumbs'),
    ({'scales': ('ab',)}, r"scales=\('ab',\)"),
    ({'limits': Limits}, None),
  ],
)
def test_bad_settings_are_refused(store, options, message):
  if message is None:
    with pytest.raises(ValueError, match='body_bytes=0: expected more than 0'):
      Limits(body_bytes=0)
    return
  with pytest.raises(ValueError, match=message):
    make_app(store, **({'token': TOKEN} | options))
