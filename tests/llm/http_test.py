from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import signal
import socket
import threading
import time

import numpy as np
import pytest

from promptrl_jax.llm import backend as backend_lib
from promptrl_jax.llm import http as http_lib
from promptrl_jax.llm.backend import Completion, Message
from promptrl_jax.llm.http_config import HttpConfig
from promptrl_jax.testing.fake_openai import NO_USAGE, FakeOpenAI
from promptrl_jax.testing.fake_server import (
  CUT,
  HANG,
  WRONG_JSON,
  Reply,
  rate_limited,
)

KEY = 'sk-very-secret'


def ask(text='hi', **kwargs):
  messages = (backend_lib.Message('user', text),)
  return backend_lib.Request(messages, **kwargs)


def echo(body):
  return 're: ' + body['messages'][-1]['content']


def answer(text, finish_reason='stop'):
  """The body of a response, for texts that no server should send."""
  return {
    'choices': [{'message': {'content': text}, 'finish_reason': finish_reason}],
    'usage': {'prompt_tokens': 7, 'completion_tokens': 2},
  }


@pytest.fixture
def connect(monkeypatch):
  """`connect(answer_fn, faults, **settings) -> (backend, server)`, closed."""
  monkeypatch.setenv('OPENAI_API_KEY', KEY)
  with contextlib.ExitStack() as stack:

    def connect_fn(answer_fn=echo, faults=(), certainty=False, **settings):
      server = stack.enter_context(FakeOpenAI(answer_fn, faults))
      defaults = {'backoff_s': 0.01, 'max_retries': 2}
      config = HttpConfig(server.url, **(defaults | settings))
      backend = http_lib.HttpBackend('m', config, certainty)
      stack.callback(backend.close)
      return backend, server

    yield connect_fn


def test_body_carries_every_setting_and_system_text_has_its_own_role(connect):
  backend, server = connect(echo)
  messages = (
    backend_lib.Message('system', 'be brief'),
    backend_lib.Message('user', 'hi'),
  )
  request = backend_lib.Request(messages, 0.5, 0.9, 3, 64, ('\n\n',))

  [completion] = backend.complete([request])

  assert completion == backend_lib.Completion('re: hi', 7, 2, 'stop')
  assert server.paths == ['/v1/chat/completions']
  assert server.headers[0]['Authorization'] == f'Bearer {KEY}'
  assert server.bodies == [
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
  backend, server = connect(lambda body: f'{body["prompt"]} x')
  text = backend_lib.Message('text', 'def f(x):')
  (completion,) = backend.complete([backend_lib.Request((text,))])
  assert completion.text == 'def f(x): x'
  assert (
    server.paths == ['/v1/completions'] and 'messages' not in server.bodies[0]
  )


@pytest.mark.parametrize('role', ['user', 'text'])
def test_confidence_is_read_from_log_probs(connect, role):
  backend, server = connect(
    lambda body: Completion('two words', 7, 2, 'stop'), certainty=True
  )
  request = backend_lib.Request((Message(role, 'x'),))
  (found,) = backend.complete([request])
  # 1/2 and 1/4; in both places the rest of the distribution is 1/2 and 1/4.
  assert dataclasses.astuple(found.confidence) == pytest.approx(
    (np.log(1 / 8) / 2, np.log(1 / 4), 1.5 * np.log(2))
  )
  asked = {k: v for k, v in server.bodies[0].items() if 'logprobs' in k}
  many = {'logprobs': True, 'top_logprobs': 20}
  assert asked == (many if role == 'user' else {'logprobs': 5})


def test_a_server_without_log_probs_is_told_apart_from_one_that_is_unsure(
  connect,
):
  backend, _ = connect(lambda body: Reply(body=answer('x')), certainty=True)
  with pytest.raises(backend_lib.BackendError, match='set certainty=False'):
    backend.complete([ask()])
  backend, server = connect(lambda body: Completion('x', 7, 1, 'stop'))
  (found,) = backend.complete([ask()])
  assert found.confidence is None and 'logprobs' not in server.bodies[0]


def test_order_is_kept_when_answers_arrive_in_reverse(connect):
  def slow_first(body):
    i = int(body['messages'][0]['content'])
    time.sleep(0.05 * (3 - i))
    return str(i)

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

  backend, server = connect(wait_for_three, concurrency=3)
  backend.complete([ask(str(i)) for i in range(9)])
  assert server.most_in_flight == 3


@pytest.mark.parametrize('status', [408, 409, 429, 500, 503])
def test_transient_status_is_tried_again(connect, status):
  backend, server = connect(faults=[Reply(status)])
  assert backend.complete([ask()])[0].text == 're: hi'
  assert len(server.bodies) == 2


def test_server_error_until_exhaustion_reports_attempts_and_body(connect):
  backend, server = connect(lambda body: Reply(500, {'error': 'out of memory'}))
  with pytest.raises(backend_lib.BackendError) as caught:
    backend.complete([ask()])
  assert 'after 3 attempts' in str(caught.value)
  assert 'HTTP 500' in str(caught.value)
  assert 'out of memory' in str(caught.value)
  assert len(server.bodies) == 3


def test_client_error_is_not_retried_and_key_stays_secret(connect, caplog):
  caplog.set_level(logging.DEBUG)
  backend, server = connect(
    lambda body: Reply(401, {'error': f'bad key {KEY}'})
  )
  with pytest.raises(backend_lib.BackendError) as caught:
    backend.complete([ask()])
  assert 'HTTP 401' in str(caught.value)
  assert '$OPENAI_API_KEY' in str(caught.value)
  assert len(server.bodies) == 1
  assert KEY not in str(caught.value) + caplog.text


def test_hanging_server_ends_in_a_time_out(connect):
  backend, server = connect(faults=[HANG] * 2, timeout_s=0.2, max_retries=1)
  start = time.monotonic()
  with pytest.raises(backend_lib.BackendError, match='did not answer in time'):
    backend.complete([ask()])
  assert time.monotonic() - start < 4
  assert len(server.bodies) == 2


def test_silence_ends_in_the_read_time_out_before_the_total_one(connect):
  backend, _ = connect(faults=[HANG], read_timeout_s=0.1, max_retries=0)
  with pytest.raises(backend_lib.BackendError, match='ReadTimeout'):
    backend.complete([ask()])


def test_refused_connection_says_so(monkeypatch):
  monkeypatch.delenv('OPENAI_API_KEY', raising=False)
  with socket.socket() as free:
    free.bind(('127.0.0.1', 0))
    url = f'http://127.0.0.1:{free.getsockname()[1]}'
  config = HttpConfig(url, max_retries=1, backoff_s=0.01)
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
    (NO_USAGE.body, "KeyError\\('usage'\\)"),
    ({'choices': [{}], 'usage': {}}, "KeyError\\('message'\\)"),
    ([1, 2], 'TypeError'),
    (answer([{'text': 'x'}]), 'content is list'),
    (b'<html>', 'is not JSON'),
    (WRONG_JSON.body, 'is not JSON'),
    (answer(None, 'content_filter'), 'content filter'),
  ],
)
def test_unusable_answer_is_a_system_failure(connect, reply, message):
  backend, server = connect(lambda body: Reply(body=reply))
  with pytest.raises(backend_lib.BackendError, match=message):
    backend.complete([ask()])
  assert len(server.bodies) == 1


def test_cut_and_empty_answers_are_the_models_own(connect):
  backend, _ = connect(lambda body: Completion('', 7, 2, 'length'))
  [completion] = backend.complete([ask()])
  assert (completion.text, completion.finish_reason) == ('', 'length')


def test_retry_after_is_waited_for(connect):
  backend, _ = connect(faults=[rate_limited('0.3')])
  start = time.monotonic()
  backend.complete([ask()])
  assert time.monotonic() - start >= 0.3


def test_retry_after_beyond_patience_fails_at_once(connect):
  backend, server = connect(lambda body: rate_limited('3600'))
  with pytest.raises(backend_lib.BackendError, match='wait 3600 s'):
    backend.complete([ask()])
  assert len(server.bodies) == 1


def test_one_hopeless_request_cancels_the_rest(connect):
  def reply(body):
    if body['messages'][0]['content'] == 'bad':
      return Reply(400, {'error': 'bad request'})
    return HANG

  backend, _ = connect(reply)
  start = time.monotonic()
  with pytest.raises(backend_lib.BackendError, match='HTTP 400'):
    backend.complete([ask('good'), ask('bad')])
  assert time.monotonic() - start < 4


@pytest.mark.usefixtures('interruptible')
def test_interrupt_cancels_and_the_backend_stays_usable(connect):
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
  remote = HttpConfig('https://api.example.com/v1')
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
  config = HttpConfig('http://127.0.0.1:1')
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
    {'run_timeout_s': -1.0},
    {'tokens_per_minute': float('nan')},
  ],
)
def test_bad_settings_are_refused_without_showing_a_password(settings):
  settings = {'base_url': 'http://localhost'} | settings
  with pytest.raises(ValueError) as caught:
    HttpConfig(**settings)
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


def test_a_connection_that_is_cut_is_tried_again(connect):
  backend, server = connect(faults=[CUT])
  assert backend.complete([ask()])[0].text == 're: hi'
  assert len(server.bodies) == 2


def test_answers_are_handed_out_before_a_slow_one_and_before_a_failure(connect):
  def reply(body):
    text = body['messages'][0]['content']
    return {'slow': HANG, 'bad': Reply(400)}.get(text) or echo(body)

  backend, _ = connect(reply)
  answers = backend.complete_each([ask('slow'), ask('a'), ask('b')])
  assert {next(answers)[0], next(answers)[0]} == {1, 2}
  answers.close()  # Cancels the slow one.

  backend, _ = connect(reply, concurrency=1)
  answers = backend.complete_each([ask('a'), ask('bad'), ask('b')])
  assert next(answers)[0] == 0
  with pytest.raises(backend_lib.BackendError, match='HTTP 400'):
    next(answers)


def test_requests_of_a_minute_are_bounded_with_their_retries(connect):
  backend, server = connect(
    faults=[Reply(500)] * 2, requests_per_minute=1200, concurrency=4
  )
  start = time.monotonic()
  backend.complete([ask(str(i)) for i in range(4)])
  assert len(server.bodies) == 6
  assert time.monotonic() - start >= 5 * 0.05  # 1200 a minute, one at once


def test_tokens_that_were_not_used_are_given_back(connect):
  # 100 of 1,000 may be sent at once, which is one request as long as it is not
  # known how little it uses: the second one would wait for 7 s.
  backend, _ = connect(tokens_per_minute=1000, concurrency=1)
  start = time.monotonic()
  backend.complete([ask('x' * 30, max_tokens=86) for _ in range(4)])
  assert time.monotonic() - start < 4


def test_a_run_ends_after_its_time_and_starts_nothing_more(connect):
  def reply(body):
    return HANG if body['messages'][0]['content'] == 'slow' else echo(body)

  backend, server = connect(reply, run_timeout_s=0.3)
  start = time.monotonic()
  with pytest.raises(
    backend_lib.BackendError, match='run_timeout_s=0.3 .* 1 of'
  ):
    backend.complete([ask('fast'), ask('slow')])
  assert time.monotonic() - start < 4
  with pytest.raises(backend_lib.BackendError, match='run_timeout_s'):
    backend.complete([ask('late')])
  assert len(server.bodies) == 2
