from __future__ import annotations

import contextlib
import dataclasses
import http.server
import json
import logging
import os
import signal
import socket
import threading
import time

import pytest

from promptrl_jax.llm import backend as backend_lib
from promptrl_jax.llm import http as http_lib

KEY = 'sk-very-secret'


def ask(text='hi', **kwargs):
  messages = (backend_lib.Message('user', text),)
  return backend_lib.Request(messages, **kwargs)


def answer(text, finish_reason='stop'):
  return {
    'choices': [{'message': {'content': text}, 'finish_reason': finish_reason}],
    'usage': {'prompt_tokens': 7, 'completion_tokens': 2},
  }


def echo(body):
  return 200, answer('re: ' + body['messages'][-1]['content'])


class StubServer:
  """Answers with `reply_fn(body) -> (status, json or bytes[, headers])`."""

  def __init__(self, reply_fn):
    self.bodies, self.headers, self.paths = [], [], []
    self.in_flight = self.most_in_flight = 0
    lock = threading.Lock()
    stub = self

    class Handler(http.server.BaseHTTPRequestHandler):
      protocol_version = 'HTTP/1.1'

      def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers['content-length'])))
        with lock:
          stub.bodies.append(body)
          stub.headers.append(dict(self.headers))
          stub.paths.append(self.path)
          stub.in_flight += 1
          stub.most_in_flight = max(stub.most_in_flight, stub.in_flight)
        status, data, *headers = reply_fn(body)
        with lock:
          stub.in_flight -= 1
        if not isinstance(data, bytes):
          data = json.dumps(data).encode()
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
          self.send_response(status)
          for name, value in (headers[0] if headers else {}).items():
            self.send_header(name, value)
          self.send_header('content-length', str(len(data)))
          self.end_headers()
          self.wfile.write(data)

      def log_message(self, *args):
        pass

    self._server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)
    self._server.daemon_threads = True
    self.url = f'http://127.0.0.1:{self._server.server_port}/v1'
    threading.Thread(
      target=self._server.serve_forever, args=(0.01,), daemon=True
    ).start()

  def close(self):
    self._server.shutdown()
    self._server.server_close()


@pytest.fixture
def connect(monkeypatch):
  """`connect(reply_fn, **settings) -> (backend, stub)`, closed afterwards."""
  monkeypatch.setenv('OPENAI_API_KEY', KEY)
  with contextlib.ExitStack() as stack:

    def connect_fn(reply_fn, **settings):
      stub = StubServer(reply_fn)
      stack.callback(stub.close)
      defaults = {'backoff_s': 0.01, 'max_retries': 2}
      config = http_lib.HttpConfig(stub.url, **(defaults | settings))
      backend = http_lib.HttpBackend('m', config)
      stack.callback(backend.close)
      return backend, stub

    yield connect_fn


def in_turn(*replies):
  """A reply function that gives each of the replies once."""
  rest = iter(replies)
  return lambda body: next(rest)


def test_body_carries_every_setting_and_system_text_has_its_own_role(connect):
  backend, stub = connect(echo)
  messages = (
    backend_lib.Message('system', 'be brief'),
    backend_lib.Message('user', 'hi'),
  )
  request = backend_lib.Request(messages, 0.5, 0.9, 3, 64, ('\n\n',))

  [completion] = backend.complete([request])

  assert completion == backend_lib.Completion('re: hi', 7, 2, 'stop')
  assert stub.paths == ['/v1/chat/completions']
  assert stub.headers[0]['Authorization'] == f'Bearer {KEY}'
  assert stub.bodies == [
    {
      'model': 'm',
      'messages': [
        {'role': 'system', 'content': 'be brief'},
        {'role': 'user', 'content': 'hi'},
      ],
      'temperature': 0.5,
      'top_p': 0.9,
      'seed': 3,
      'max_tokens': 64,
      'stop': ['\n\n'],
    }
  ]


def test_a_text_is_continued_as_it_stands(connect):
  def reply(body):
    choice = {'text': f'{body["prompt"]} x', 'finish_reason': 'stop'}
    return 200, {**answer(''), 'choices': [choice]}

  backend, stub = connect(reply)
  text = backend_lib.Message('text', 'def f(x):')
  (completion,) = backend.complete([backend_lib.Request((text,))])
  assert completion.text == 'def f(x): x'
  assert stub.paths == ['/v1/completions'] and 'messages' not in stub.bodies[0]


def test_order_is_kept_when_answers_arrive_in_reverse(connect):
  def slow_first(body):
    i = int(body['messages'][0]['content'])
    time.sleep(0.05 * (3 - i))
    return 200, answer(str(i))

  backend, _ = connect(slow_first)
  completions = backend.complete([ask(str(i)) for i in range(4)])
  assert [c.text for c in completions] == ['0', '1', '2', '3']
  assert backend.complete([]) == []


def test_concurrency_bound_is_reached_and_not_passed(connect):
  three_at_once = threading.Barrier(3)

  def wait_for_three(body):
    three_at_once.wait(5)
    time.sleep(0.05)  # Time for a fourth to come in.
    return echo(body)

  backend, stub = connect(wait_for_three, concurrency=3)
  backend.complete([ask(str(i)) for i in range(9)])
  assert stub.most_in_flight == 3


@pytest.mark.parametrize('status', [408, 409, 429, 500, 503])
def test_transient_status_is_tried_again(connect, status):
  backend, stub = connect(in_turn((status, {}), (200, answer('ok'))))
  assert backend.complete([ask()])[0].text == 'ok'
  assert len(stub.bodies) == 2


def test_server_error_until_exhaustion_reports_attempts_and_body(connect):
  backend, stub = connect(lambda body: (500, {'error': 'out of memory'}))
  with pytest.raises(backend_lib.BackendError) as caught:
    backend.complete([ask()])
  assert 'after 3 attempts' in str(caught.value)
  assert 'HTTP 500' in str(caught.value)
  assert 'out of memory' in str(caught.value)
  assert len(stub.bodies) == 3


def test_client_error_is_not_retried_and_key_stays_secret(connect, caplog):
  caplog.set_level(logging.DEBUG)
  backend, stub = connect(lambda body: (401, {'error': f'bad key {KEY}'}))
  with pytest.raises(backend_lib.BackendError) as caught:
    backend.complete([ask()])
  assert 'HTTP 401' in str(caught.value)
  assert '$OPENAI_API_KEY' in str(caught.value)
  assert len(stub.bodies) == 1
  assert KEY not in str(caught.value) + caplog.text


def test_hanging_server_ends_in_a_time_out(connect):
  release = threading.Event()

  def hang(body):
    release.wait(5)
    return echo(body)

  backend, stub = connect(hang, timeout_s=0.2, max_retries=1)
  start = time.monotonic()
  with pytest.raises(backend_lib.BackendError, match='did not answer in time'):
    backend.complete([ask()])
  assert time.monotonic() - start < 4
  assert len(stub.bodies) == 2
  release.set()


def test_silence_ends_in_the_read_time_out_before_the_total_one(connect):
  def slow(body):
    time.sleep(0.5)
    return echo(body)

  backend, _ = connect(slow, read_timeout_s=0.1, max_retries=0)
  with pytest.raises(backend_lib.BackendError, match='ReadTimeout'):
    backend.complete([ask()])


def test_refused_connection_says_so(monkeypatch):
  monkeypatch.delenv('OPENAI_API_KEY', raising=False)
  with socket.socket() as free:
    free.bind(('127.0.0.1', 0))
    url = f'http://127.0.0.1:{free.getsockname()[1]}'
  config = http_lib.HttpConfig(url, max_retries=1, backoff_s=0.01)
  with (
    contextlib.closing(http_lib.HttpBackend('m', config)) as backend,
    pytest.raises(backend_lib.BackendError, match='is the server running'),
  ):
    backend.complete([ask()])


@pytest.mark.parametrize(
  ('reply', 'message'),
  [
    ({'choices': [], 'usage': {}}, 'has no choices'),
    ({'usage': {}}, "KeyError\\('choices'\\)"),
    ({'choices': [{'message': {'content': 'x'}}]}, "KeyError\\('usage'\\)"),
    ({'choices': [{}], 'usage': {}}, "KeyError\\('message'\\)"),
    ([1, 2], 'TypeError'),
    (answer([{'text': 'x'}]), 'content is list'),
    (b'<html>', 'is not JSON'),
    (b'{"choices": [', 'is not JSON'),
    (answer(None, 'content_filter'), 'content filter'),
  ],
)
def test_unusable_answer_is_a_system_failure(connect, reply, message):
  backend, stub = connect(lambda body: (200, reply))
  with pytest.raises(backend_lib.BackendError, match=message):
    backend.complete([ask()])
  assert len(stub.bodies) == 1


def test_cut_and_empty_answers_are_the_models_own(connect):
  backend, _ = connect(lambda body: (200, answer(None, 'length')))
  [completion] = backend.complete([ask()])
  assert (completion.text, completion.finish_reason) == ('', 'length')


def test_retry_after_is_waited_for(connect):
  backend, _ = connect(
    in_turn((429, {}, {'Retry-After': '0.3'}), (200, answer('ok')))
  )
  start = time.monotonic()
  backend.complete([ask()])
  assert time.monotonic() - start >= 0.3


def test_retry_after_beyond_patience_fails_at_once(connect):
  backend, stub = connect(lambda body: (429, {}, {'Retry-After': '3600'}))
  with pytest.raises(backend_lib.BackendError, match='wait 3600 s'):
    backend.complete([ask()])
  assert len(stub.bodies) == 1


def test_one_hopeless_request_cancels_the_rest(connect):
  release = threading.Event()

  def reply(body):
    if body['messages'][0]['content'] == 'bad':
      return 400, {'error': 'bad request'}
    release.wait(5)
    return echo(body)

  backend, _ = connect(reply)
  start = time.monotonic()
  with pytest.raises(backend_lib.BackendError, match='HTTP 400'):
    backend.complete([ask('good'), ask('bad')])
  assert time.monotonic() - start < 4
  release.set()


@pytest.fixture
def sigint():
  """Python's own handler: a job in the background inherits none."""
  before = signal.signal(signal.SIGINT, signal.default_int_handler)
  yield
  signal.signal(signal.SIGINT, before)


def test_interrupt_cancels_and_the_backend_stays_usable(connect, sigint):
  started, release = threading.Event(), threading.Event()

  def reply(body):
    if body['messages'][0]['content'] == 'slow':
      started.set()
      release.wait(5)
    return echo(body)

  def press_ctrl_c():
    started.wait(5)
    os.kill(os.getpid(), signal.SIGINT)

  backend, _ = connect(reply, concurrency=1)
  threading.Thread(target=press_ctrl_c).start()
  start = time.monotonic()
  with pytest.raises(KeyboardInterrupt):
    backend.complete([ask('slow')])
  assert backend.complete([ask('fast')])[0].text == 're: fast'
  assert time.monotonic() - start < 4
  release.set()


def test_proxy_is_not_asked_for_a_server_on_this_machine(connect, monkeypatch):
  monkeypatch.setenv('HTTP_PROXY', 'http://127.0.0.1:1')
  monkeypatch.delenv('NO_PROXY', raising=False)
  monkeypatch.delenv('no_proxy', raising=False)
  backend, _ = connect(echo, max_retries=0)
  assert backend.complete([ask()])[0].text == 're: hi'


def test_key_is_required_off_this_machine_and_optional_on_it(monkeypatch):
  monkeypatch.delenv('OPENAI_API_KEY', raising=False)
  remote = http_lib.HttpConfig('https://api.example.com/v1')
  with pytest.raises(ValueError, match='OPENAI_API_KEY holds no key'):
    http_lib.HttpBackend('m', remote)
  for config in (
    dataclasses.replace(remote, api_key_env=''),
    dataclasses.replace(remote, base_url='http://localhost:8000/v1'),
    dataclasses.replace(remote, base_url='http://[::1]:8000/v1'),
  ):
    http_lib.HttpBackend('m', config).close()


def test_key_that_no_header_can_hold_is_refused_without_showing_it(monkeypatch):
  monkeypatch.setenv('OPENAI_API_KEY', 'se\ncret')
  config = http_lib.HttpConfig('http://127.0.0.1:1')
  with pytest.raises(ValueError, match='cannot be sent') as caught:
    http_lib.HttpBackend('m', config)
  assert 'cret' not in str(caught.value)


@pytest.mark.parametrize(
  'settings',
  [
    {'base_url': 'localhost:8000'},
    {'base_url': 'http://user:secret@localhost:8000'},
    {'timeout_s': 0},
    {'concurrency': 0},
  ],
)
def test_bad_settings_are_refused_without_showing_a_password(settings):
  settings = {'base_url': 'http://localhost'} | settings
  with pytest.raises(ValueError) as caught:
    http_lib.HttpConfig(**settings)
  assert 'secret' not in str(caught.value)


def test_context_limit_counts_prompt_and_completion(connect):
  limited, _ = connect(echo, max_context=100)
  unlimited, _ = connect(echo)
  assert limited.fits(ask('x' * 30, max_tokens=86))
  assert not limited.fits(ask('x' * 30, max_tokens=87))
  assert unlimited.fits(ask('x' * 10**6))


def test_closing_ends_a_call_that_another_thread_waits_for(connect):
  started, release, errors = threading.Event(), threading.Event(), []

  def slow(body):
    started.set()
    release.wait(5)
    return echo(body)

  def work():
    try:
      backend.complete([ask()])
    except backend_lib.BackendError as error:
      errors.append(str(error))

  backend, _ = connect(slow)
  thread = threading.Thread(target=work)
  thread.start()
  started.wait(5)
  backend.close()
  thread.join(4)
  assert errors == ["call of 'm' was cancelled"]
  release.set()


def test_closed_backend_refuses_work(connect):
  backend, _ = connect(echo)
  backend.close()
  backend.close()
  with pytest.raises(backend_lib.BackendError, match='was closed'):
    backend.complete([ask()])
