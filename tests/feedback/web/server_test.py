"""The server in its thread, over a real connection."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import httpx
import pytest

from promptrl_jax.feedback.collector import FeedbackCollector
from promptrl_jax.feedback.store import Store
from tests.feedback.build import answer, pair

pytest.importorskip('starlette', reason='the extra serve is not installed')
pytest.importorskip('uvicorn', reason='the extra serve is not installed')
from promptrl_jax.feedback.web.server import (
  FeedbackServer,
  is_loopback,
)


@pytest.fixture
def store(tmp_path):
  with Store.open(tmp_path / 'f') as store:
    yield store


@contextlib.contextmanager
def browse(page):
  """A client that opened the link, as a browser does."""
  with httpx.Client(base_url=page.address, follow_redirects=True) as client:
    assert client.get(page.url).status_code == 200
    yield client


def test_a_training_loop_waits_for_what_the_page_sends(store):
  people = FeedbackCollector(store)

  def person(page):
    with browse(page) as client:
      asked = client.get('/api/questions', params={'wait_s': 10}).json()
      first, second = asked['questions'][0]['responses']
      event = {
        'id': 'e1',
        'kind': 'preference',
        'response_id': first['id'],
        'other_id': second['id'],
        'value': 'b',
        'at': time.time(),
      }
      client.post('/api/events', json={'events': [event]})

  with FeedbackServer(store) as page:
    people.show(*pair())
    thread = threading.Thread(target=person, args=(page,))
    thread.start()
    assert people.wait('b', timeout_s=20) == 1.0
    assert people.score('a') == 0.0
    thread.join()


def test_stopping_does_not_wait_for_those_who_wait(store):
  replies = []
  with FeedbackServer(store) as page, browse(page) as client:
    tag = client.get('/api/questions').json()['tag']
    query = {'seen': tag, 'wait_s': 25}

    def wait():
      replies.append(client.get('/api/questions', params=query, timeout=30))

    threads = [threading.Thread(target=wait) for _ in range(3)]
    for thread in threads:
      thread.start()
    time.sleep(0.5)
    begin = time.monotonic()
    page.stop()
    assert time.monotonic() - begin < 3
    for thread in threads:
      thread.join(10)
  assert [reply.status_code for reply in replies] == [200] * 3


def test_the_same_port_and_token_serve_again(store):
  first = FeedbackServer(store)
  with first, browse(first) as client:
    first.stop()
    with FeedbackServer(store, first.port, token=first.token) as again:
      assert again.url == first.url
      assert client.get('/api/questions').status_code == 200


def test_a_taken_port_is_one_line(store):
  with FeedbackServer(store) as page:
    with pytest.raises(OSError, match=rf'port {page.port} .* is taken') as info:
      FeedbackServer(store, port=page.port)
    assert '\n' not in str(info.value)
  with pytest.raises(ValueError, match='port=70000: expected 0 to 65535'):
    FeedbackServer(store, port=70000)
  with pytest.raises(OSError, match='cannot listen on no.such.host.invalid'):
    FeedbackServer(store, host='no.such.host.invalid', allow_remote=True)


def test_other_machines_are_let_in_by_name_alone(store):
  for host in ('0.0.0.0', '::', 'example.com', '10.0.0.1'):
    with pytest.raises(ValueError, match='allow_remote=True'):
      FeedbackServer(store, host=host)
  server = FeedbackServer(
    store, host='0.0.0.0', allow_remote=True, hosts=['lab.example']
  )
  with server as page:
    assert page.address == f'http://lab.example:{page.port}/'
    url = f'http://127.0.0.1:{page.port}/api/questions'
    headers = {'authorization': f'Bearer {page.token}'}
    for host, status in (
      ('lab.example', 200),
      (socket.gethostname(), 200),
      ('127.0.0.1', 200),
      ('evil.example', 421),
    ):
      reply = httpx.get(url, headers=headers | {'host': host})
      assert reply.status_code == status


def test_loopback_has_several_names():
  yes = ('localhost', '127.0.0.1', '127.1.2.3', '::1', '[::1]')
  no = ('0.0.0.0', '::', 'localhost.example', '10.0.0.1', '')
  assert all(map(is_loopback, yes))
  assert not any(map(is_loopback, no))


def test_a_missing_extra_is_one_line(store, monkeypatch):
  monkeypatch.setitem(sys.modules, 'uvicorn', None)
  with pytest.raises(ImportError, match=r"pip install 'promptrl_jax\[serve\]'"):
    FeedbackServer(store)


def serve(*arguments, **environment):
  return subprocess.Popen(
    [sys.executable, '-m', 'promptrl_jax.feedback.web', *arguments],
    env=os.environ | environment,
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
  )


@pytest.mark.usefixtures('interruptible')
def test_the_command_serves_a_store_until_ctrl_c(store):
  store.add_response(answer('r'))
  token = 'token-from-the-environment'
  command = serve(
    f'--store={store.path}', '--port=0', PROMPTRL_FEEDBACK_TOKEN=token
  )
  assert command.stdout
  url = command.stdout.readline().split()[1]
  assert url.endswith(f'/?token={token}')
  with httpx.Client(follow_redirects=True) as client:
    assert client.get(url).status_code == 200
  command.send_signal(signal.SIGINT)
  _, printed = command.communicate(timeout=30)
  assert (command.returncode, printed) == (0, '')


def test_the_command_says_in_one_line_what_is_wrong(tmp_path):
  command = serve(f'--store={tmp_path / "none"}')
  _, printed = command.communicate(timeout=30)
  assert command.returncode == 1
  assert printed.startswith('error: --store=') and printed.count('\n') == 1
