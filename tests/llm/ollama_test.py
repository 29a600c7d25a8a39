"""Ollama's own protocol against the fake of it."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest

from promptrl_jax.llm.backend import BackendError, Completion, Message, Request
from promptrl_jax.llm.http_config import HttpConfig
from promptrl_jax.llm.load import BackendConfig, load_backend
from promptrl_jax.llm.ollama import OllamaBackend, Progress
from promptrl_jax.sampling import filters
from promptrl_jax.sampling.methods import Sampling
from promptrl_jax.testing.fake_ollama import FakeOllama
from promptrl_jax.testing.fake_server import CUT, HANG, Reply, rate_limited


@pytest.fixture
def connect():
  """`connect(server, **settings) -> backend`; both are closed afterwards."""
  with contextlib.ExitStack() as stack:

    def connect_fn(server, model='m', method=Sampling(), **settings):
      stack.enter_context(server)
      defaults = {'backoff_s': 0.01, 'max_retries': 2}
      config = HttpConfig(server.url, **(defaults | settings))
      backend = OllamaBackend(model, config, method)
      stack.callback(backend.close)
      return backend

    yield connect_fn


def ask(text='hi', **kwargs):
  return Request((Message('user', text),), **kwargs)


def test_a_chat_carries_every_setting_and_no_filter_of_ollamas_own(connect):
  server = FakeOllama(lambda body: 're: ' + body['messages'][-1]['content'])
  backend = connect(server, max_context=4096)
  messages = (Message('system', 'be brief'), Message('user', 'hi'))
  request = Request(messages, 0.5, 0.9, 3, 64, ('\n\n',), 'test')
  assert backend.complete([request]) == [Completion('re: hi', 7, 2, 'stop')]
  assert server.paths == ['/api/chat']
  assert server.bodies == [
    {
      'model': 'm',
      'stream': False,
      'messages': [
        {'role': 'system', 'content': 'be brief'},
        {'role': 'user', 'content': 'hi'},
      ],
      'options': {
        'temperature': 0.5,
        'top_p': 0.9,
        'seed': 3,
        'num_predict': 64,
        'top_k': 0,
        'min_p': 0.0,
        'repeat_penalty': 1.0,
        'stop': ['\n\n'],
        'num_ctx': 4096,
      },
    }
  ]


def test_a_text_is_continued_raw(connect):
  server = FakeOllama(lambda body: f'{body["prompt"]} x')
  backend = connect(server, method=Sampling(top_k=5, min_p=0.1))
  (completion,) = backend.complete([Request((Message('text', 'def f(x):'),))])
  assert completion.text == 'def f(x): x'
  (body,) = server.bodies
  assert server.paths == ['/api/generate']
  assert body['raw'] is True and 'messages' not in body
  assert (body['options']['top_k'], body['options']['min_p']) == (5, 0.1)
  assert 'num_ctx' not in body['options']


def test_counts_that_ollama_leaves_out_are_zero_and_cuts_are_seen(connect):
  backend = connect(FakeOllama(lambda body: Completion('', 0, 0, 'length')))
  assert backend.complete([ask()]) == [Completion('', 0, 0, 'length')]


@pytest.mark.parametrize('fault', [Reply(500), rate_limited('0.01'), CUT])
def test_faults_are_tried_again_as_with_any_server(connect, fault):
  server = FakeOllama(lambda body: 'ok', [fault])
  assert connect(server).complete([ask()])[0].text == 'ok'
  assert len(server.bodies) == 2


@pytest.mark.parametrize(
  ('reply', 'message'),
  [
    (Reply(body=b'{"message": {'), 'is not JSON'),
    (Reply(body={'message': {'content': 'x'}}), r"KeyError\('done'\)"),
    (Reply(body={'done': False, 'response': 'x'}), 'is not finished'),
    (Reply(body={'done': True}), r"KeyError\('response'\)"),
    (Reply(body={'done': True, 'response': 7}), 'content is int'),
    (Reply(404, {'error': 'not found'}), 'HTTP 404.* the model name'),
  ],
)
def test_unusable_answers_are_failures_of_the_system(connect, reply, message):
  server = FakeOllama(faults=[reply])
  with pytest.raises(BackendError, match=message):
    connect(server).complete([ask()])
  assert len(server.bodies) == 1


def test_hanging_ends_in_a_time_out(connect):
  backend = connect(FakeOllama(faults=[HANG]), timeout_s=0.2, max_retries=0)
  with pytest.raises(BackendError, match='did not answer in time'):
    backend.complete([ask()])


def test_the_models_are_listed_and_the_digest_joins_the_name(connect):
  backend = connect(FakeOllama(models=['m:latest', 'n:1b']))
  assert list(backend.models()) == ['m:latest', 'n:1b']
  assert backend.name == 'm'
  backend.find()
  name, digest = backend.name.split('@')
  assert name == 'm' and len(digest) == 12
  assert backend.models()['m:latest'].startswith(digest)


def test_a_model_that_is_not_there_is_an_error_or_pulled(connect):
  server = FakeOllama(models=['n:1b'], registry=['m:latest'])
  backend = connect(server)
  with pytest.raises(BackendError, match="no model 'm:latest', only n:1b"):
    backend.find()
  steps = []
  backend.find(pull=True, progress=steps.append)
  assert steps == [
    Progress('pulling manifest'),
    Progress('pulling 0123', 40, 100),
    Progress('pulling 0123', 100, 100),
    Progress('success'),
  ]
  assert backend.name.startswith('m@')
  with pytest.raises(BackendError, match='file does not exist'):
    connect(FakeOllama(models=[]), model='typo').find(pull=True)


def test_a_pull_that_is_cut_says_so_and_goes_on_the_next_time(connect):
  server = FakeOllama(models=[], registry=['m:latest'])
  server.cuts_pulls = True
  backend = connect(server)
  with pytest.raises(BackendError, match='broke'):
    backend.pull()
  server.cuts_pulls = False
  backend.find(pull=True)
  assert backend.name.startswith('m@')


def test_texts_become_vectors(connect):
  backend = connect(FakeOllama())
  vectors = backend.embed(['ab', 'abcd'])
  np.testing.assert_array_equal(vectors, [[2, 1], [4, 1]])
  assert vectors.dtype == np.float32
  server = FakeOllama(faults=[Reply(body={'embeddings': [[1.0]]})])
  with pytest.raises(BackendError, match='2 texts have vectors'):
    connect(server).embed(['ab', 'abcd'])


def test_it_is_loaded_by_its_name_without_a_key_of_another_service(monkeypatch):
  monkeypatch.setenv('OPENAI_API_KEY', 'sk-of-another-service')
  with FakeOllama(lambda body: 'ok', registry=['q:1b']) as server:
    http = HttpConfig(server.url, max_retries=0)
    with pytest.raises(BackendError, match='ollama pull q:1b'):
      load_backend(BackendConfig('ollama', 'q:1b', http=http))
    config = BackendConfig(
      'ollama', 'q:1b', http=http, options={'pull': True}, min_p=0.2
    )
    with contextlib.closing(load_backend(config)) as backend:
      assert backend.complete([ask()])[0].text == 'ok'
    assert server.bodies[-1]['options']['min_p'] == 0.2
    assert all('Authorization' not in headers for headers in server.headers)
    with pytest.raises(ValueError, match=r'options.pul: no such setting'):
      load_backend(BackendConfig('ollama', 'q:1b', options={'pul': True}))
  with pytest.raises(BackendError, match='is the server running'):
    load_backend(BackendConfig('ollama', 'q:1b', http=http))


def test_what_ollama_cannot_do_is_refused():
  with pytest.raises(ValueError, match='needs the name of a model'):
    OllamaBackend('', HttpConfig())
  method = Sampling(filters=filters.parse('epsilon=3e-4'))
  with pytest.raises(ValueError, match='Ollama has top_k'):
    OllamaBackend('m', HttpConfig(), method)
  with pytest.raises(ValueError, match='a server is asked for 1 alone'):
    BackendConfig('ollama', 'm', beams=2)
