"""A fake of Ollama: chats, raw texts, tags, pulls and embeddings."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from promptrl_jax.testing.fake_server import (
  CUT,
  AnswerFn,
  FakeServer,
  Reply,
)


class FakeOllama(FakeServer):
  """Answers as Ollama does.

  Attributes:
    models: digests by name and tag.
    registry: what a pull finds, likewise.
    cuts_pulls: a pull is cut after its first layer.
  """

  def __init__(
    self,
    answer_fn: AnswerFn = lambda body: '',
    faults: Iterable[Reply] = (),
    models: Iterable[str] = ('m:latest',),
    registry: Iterable[str] = (),
  ):
    self.models = {name: _digest(name) for name in models}
    self.registry = {name: _digest(name) for name in registry}
    self.cuts_pulls = False
    super().__init__(answer_fn, faults)

  def respond(self, path: str, body: Any) -> Reply | list[Any]:
    if path == '/api/tags':
      rows = [{'name': n, 'digest': d} for n, d in self.models.items()]
      return Reply(body={'models': rows})
    if path not in ('/api/chat', '/api/generate', '/api/pull', '/api/embed'):
      return Reply(404, b'404 page not found')
    name = body['model'] if ':' in body['model'] else f'{body["model"]}:latest'
    if path == '/api/pull':
      return self._pull(name)
    if name not in self.models:
      return Reply(404, {'error': f'model {name!r} not found'})
    if path == '/api/embed':
      vectors = [[float(len(text)), 1.0] for text in body['input']]
      return Reply(body={'embeddings': vectors})
    answer = self.complete(body)
    if isinstance(answer, Reply):
      return answer
    key = 'message' if path == '/api/chat' else 'response'
    text = {'role': 'assistant', 'content': answer.text}
    counts = {
      'prompt_eval_count': answer.prompt_tokens,
      'eval_count': answer.completion_tokens,
    }
    return Reply(
      body={
        key: text if path == '/api/chat' else answer.text,
        'done': True,
        'done_reason': answer.finish_reason,
        # Go leaves out what is zero.
        **{name: count for name, count in counts.items() if count},
      }
    )

  def _pull(self, name: str) -> list[Any]:
    start = {'status': 'pulling manifest'}
    if name not in self.registry:
      return [start, {'error': 'pull model manifest: file does not exist'}]
    layer = {'status': 'pulling 0123', 'total': 100}
    if self.cuts_pulls:
      return [start, {**layer, 'completed': 40}, CUT]
    self.models[name] = self.registry[name]
    return [
      start,
      {**layer, 'completed': 40},
      {**layer, 'completed': 100},
      {'status': 'success'},
    ]


def _digest(name: str) -> str:
  return f'{len(name):02d}' + name.encode().hex().ljust(62, '0')[:62]
