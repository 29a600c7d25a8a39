from __future__ import annotations

import pytest

from promptrl_jax.llm.backend import BackendError, Completion, Message, Request
from promptrl_jax.llm.cache import CachedBackend


class Recorder:
  """A backend that numbers its completions and keeps every batch."""

  name = 'recorder'

  def __init__(self, dropped=0):
    self.batches = []
    self._dropped = dropped

  def complete(self, requests):
    self.batches.append(list(requests))
    done = sum(len(b) for b in self.batches) - len(requests)
    texts = [f'answer {done + i}' for i in range(len(requests))]
    return [Completion(t, 1, 1, 'stop') for t in texts[self._dropped :]]

  def fits(self, request):
    return request.max_tokens < 10

  def count_tokens(self, text):
    return len(text)

  def close(self):
    self.batches.append('closed')


def ask(text='hi', **kwargs):
  return Request((Message('user', text),), **kwargs)


def test_greedy_repetition_costs_one_call_whatever_the_seed():
  inner = Recorder()
  cached = CachedBackend(inner)
  first = cached.complete([ask(seed=1)])
  second = cached.complete([ask(seed=2)])
  assert first == second
  assert len(inner.batches) == 1
  assert (cached.hits, cached.misses) == (1, 1)


def test_samples_of_different_seeds_are_never_shared():
  inner = Recorder()
  cached = CachedBackend(inner)
  requests = [ask(temperature=1.0, seed=s) for s in range(4)]
  texts = [c.text for c in cached.complete(requests)]
  assert len(set(texts)) == 4
  assert [c.text for c in cached.complete(requests)] == texts
  assert (cached.hits, cached.misses) == (4, 4)


@pytest.mark.parametrize(
  'change',
  [
    {'text': 'other'},
    {'temperature': 0.5},
    {'temperature': 1.0, 'top_p': 0.5},
    {'max_tokens': 5},
    {'stop': ('x',)},
  ],
)
def test_every_setting_is_part_of_the_key(change):
  cached = CachedBackend(Recorder())
  [first] = cached.complete([ask()])
  [second] = cached.complete([ask(**change)])
  assert first != second


def test_misses_are_one_batch_and_order_is_kept():
  inner = Recorder()
  cached = CachedBackend(inner)
  cached.complete([ask('b')])
  texts = [
    c.text for c in cached.complete([ask('a'), ask('b'), ask('c'), ask('a')])
  ]
  assert inner.batches == [[ask('b')], [ask('a'), ask('c')]]
  assert texts == ['answer 1', 'answer 0', 'answer 2', 'answer 1']
  assert (cached.hits, cached.misses) == (2, 3)


def test_backend_that_loses_answers_is_an_error_and_stores_nothing():
  inner = Recorder(dropped=1)
  cached = CachedBackend(inner)
  with pytest.raises(BackendError, match='1 completions for 2 requests'):
    cached.complete([ask('a'), ask('b')])
  assert (cached.hits, cached.misses) == (0, 0)
  with pytest.raises(BackendError):
    cached.complete([ask('a')])


def test_everything_else_is_the_wrapped_backends():
  inner = Recorder()
  cached = CachedBackend(inner)
  assert cached.name == 'recorder'
  assert cached.count_tokens('abc') == 3
  assert cached.fits(ask(max_tokens=9)) and not cached.fits(ask(max_tokens=10))
  cached.close()
  assert inner.batches == ['closed']
