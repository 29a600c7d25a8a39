"""Token, Host, Origin, rate and size of what is asked for."""

import asyncio

import pytest

from promptrl_jax.feedback.web import security
from promptrl_jax.feedback.web.limits import Limits, SlidingWindow
from tests.feedback.build import answer, rate
from tests.feedback.web.app_test import (
  BASE,
  BEARER,
  LINK,
  TOKEN,
  client_of,
  post,
  refused,
  store,
)

__all__ = ['store']  # a fixture


@pytest.fixture
def stranger(store):
  with client_of(store, headers={}) as client:
    yield client


def test_without_the_token_nothing_is_served(stranger):
  page = stranger.get('/')
  assert page.status_code == 401
  assert 'open that link' in page.text
  assert stranger.get('/page.js').status_code == 401
  assert refused(stranger.get('/api/questions'), 401, 'WrongToken')
  assert refused(post(stranger, {}), 401, 'WrongToken', 'open that link')


@pytest.mark.parametrize(
  'header',
  [
    f'Bearer {TOKEN}x',
    f'Bearer {TOKEN[:-1]}',
    f'Basic {TOKEN}',
    TOKEN,
    'Bearer',
    'Bearer tökén-of-the-tests',
  ],
)
def test_a_wrong_token_is_refused(stranger, header):
  headers = {'authorization': header.encode('latin-1')}
  assert refused(
    stranger.get('/api/questions', headers=headers), 401, 'WrongToken'
  )
  assert stranger.get('/?token=wrong').status_code == 401
  assert stranger.get('/?token=%ff').status_code == 401
  # Only the first link may hold it: elsewhere it would stay in histories.
  assert stranger.get(f'/api/questions?token={TOKEN}').status_code == 401


def test_the_link_sets_a_cookie_and_leaves_the_address_bar(stranger):
  reply = stranger.get(LINK)
  assert (reply.status_code, reply.headers['location']) == (303, '/')
  cookie = reply.headers['set-cookie']
  assert cookie == (
    f'promptrl_feedback_8321={TOKEN}; HttpOnly; SameSite=Strict; Path=/'
  )
  assert stranger.get('/').status_code == 200
  assert stranger.get('/api/questions').status_code == 200


def test_a_link_on_another_site_reloads_instead(stranger):
  reply = stranger.get(LINK, headers={'sec-fetch-site': 'cross-site'})
  assert (reply.status_code, reply.headers['refresh']) == (200, '0; url=/')


def test_a_cookie_of_another_port_or_a_broken_one_does_not_count(stranger):
  for cookie in (f'promptrl_feedback_9={TOKEN}', f'a={TOKEN}', ';;=\x7f', 'é'):
    headers = {'cookie': cookie.encode('latin-1')}
    assert stranger.get('/', headers=headers).status_code == 401


@pytest.mark.parametrize(
  'host',
  ['evil.example', 'evil.example:8321', '127.0.0.1.evil.example', '', '[::2]'],
)
def test_a_foreign_host_is_refused(stranger, host):
  headers = BEARER | {'host': host}
  assert refused(
    stranger.get('/api/questions', headers=headers), 421, 'ForeignHost'
  )
  assert stranger.get(LINK, headers={'host': host}).status_code == 421


@pytest.mark.parametrize('host', ['localhost:1', '[::1]:8321', 'LOCALHOST'])
def test_names_of_this_machine_are_served(stranger, host):
  headers = BEARER | {'host': host}
  assert stranger.get('/api/questions', headers=headers).status_code == 200


def test_two_hosts_are_refused(stranger):
  headers = [('host', '127.0.0.1'), ('host', 'evil.example')]
  reply = stranger.get('/api/questions', headers=headers)
  assert reply.status_code in (400, 421)


@pytest.mark.parametrize(
  'headers',
  [
    {'origin': 'http://evil.example'},
    {'origin': 'null'},
    {'origin': 'http://127.0.0.1:9'},
    {'origin': 'http://localhost:8321'},
    {'sec-fetch-site': 'cross-site'},
    {'sec-fetch-site': 'same-site'},
  ],
)
def test_what_another_site_sends_is_refused(store, stranger, headers):
  store.add_response(answer('r'))
  reply = post(stranger, rate('1', 'r', 3), headers=BEARER | headers)
  assert refused(reply, 403, 'ForeignOrigin')
  assert store.events() == []


def test_the_page_itself_is_the_origin(store, stranger):
  store.add_response(answer('r'))
  headers = BEARER | {'origin': BASE, 'sec-fetch-site': 'same-origin'}
  assert post(stranger, rate('1', 'r', 3), headers=headers).status_code == 200


def test_the_241st_rating_of_a_minute_is_too_many(store):
  store.add_response(answer('r'))
  with client_of(store) as client:
    for i in range(240):
      assert post(client, rate(f'{i}', 'r', 3)).status_code == 200
    reply = post(client, rate('240', 'r', 3))
    assert refused(reply, 429, 'TooManyRequests', '240 requests in a minute')
    assert 1 <= int(reply.headers['retry-after']) <= 60
    # Reading is not limited, and strangers do not use up the limit.
    assert client.get('/api/questions').status_code == 200
  assert len(store.events()) == 240


def test_a_window_slides_and_forgets():
  now = [0.0]
  window = SlidingWindow(2, window_s=60, clock=lambda: now[0])
  assert [window.wait_s('a') for _ in range(3)] == [0, 0, 60]
  assert window.wait_s('b') == 0
  now[0] = 59.5
  assert window.wait_s('a') == 1
  now[0] = 60
  assert [window.wait_s('a') for _ in range(3)] == [0, 0, 60]
  for i in range(2000):
    assert window.wait_s(f'other {i}') == 0
  assert len(window._times) <= 1000


def test_a_large_body_is_refused_whatever_its_header_says(store):
  body = b'{"events": "' + b'x' * 2000 + b'"}'
  headers = {'content-type': 'application/json'}
  with client_of(store, limits=Limits(body_bytes=1000)) as client:
    reply = client.post('/api/events', content=body, headers=headers)
    assert refused(reply, 413, 'TooLarge', '1000 bytes')
    # In chunks, without a length.
    chunks = (body[i : i + 100] for i in range(0, len(body), 100))
    reply = client.post('/api/events', content=chunks, headers=headers)
    assert refused(reply, 413, 'TooLarge')


def ask(app, messages, headers=(), method='POST', kind='http'):
  """Plays one connection with an ASGI app; returns what it sends."""
  sent = []

  async def receive():
    if messages:
      return messages.pop(0)
    await asyncio.sleep(60)

  async def send(message):
    sent.append(message)

  scope = {
    'type': kind,
    'method': method,
    'path': '/api/events',
    'query_string': b'',
    'headers': [
      (b'host', b'localhost'),
      (b'authorization', f'Bearer {TOKEN}'.encode()),
      *headers,
    ],
    'client': ('127.0.0.1', 1),
  }
  asyncio.run(app(scope, receive, send))
  return sent


async def never(scope, receive, send):
  raise AssertionError('this was to be refused')


def guard(app=never, **limits):
  return security.Guard(app, TOKEN, ('localhost',), Limits(**limits))


def chunk(size, more=True):
  return {'type': 'http.request', 'body': b'x' * size, 'more_body': more}


def test_a_body_is_counted_while_it_comes_in():
  messages = [chunk(600), chunk(600), chunk(600)]
  sent = ask(guard(body_bytes=1000), messages, [(b'content-length', b'5')])
  assert sent[0]['status'] == 413
  assert len(messages) == 1  # Nobody read on.
  sent = ask(guard(body_bytes=1000), [], [(b'content-length', b'9' * 30)])
  assert sent[0]['status'] == 413


def test_a_body_that_does_not_come_is_not_waited_for():
  sent = ask(guard(body_s=0.05), [chunk(1)])
  assert sent[0]['status'] == 408
  sent = ask(guard(), [{'type': 'http.disconnect'}])
  assert sent[0]['status'] == 400


def test_websockets_are_refused():
  assert ask(guard(), [], kind='websocket') == [
    {'type': 'websocket.close', 'code': 1008}
  ]


def test_every_answer_carries_the_headers(store, stranger):
  replies = [
    stranger.get('/'),
    stranger.get(LINK),
    stranger.get('/'),
    stranger.get('/page.js'),
    stranger.get('/api/questions'),
    stranger.get('/nothing'),
    post(stranger, {}),
  ]
  for reply in replies:
    for name, value in security.HEADERS.items():
      assert reply.headers.get_list(name) == [value]
