from __future__ import annotations

import json
import pathlib
import sqlite3
import subprocess
import sys

import pytest

from promptrl_jax.llm import cache
from promptrl_jax.llm.backend import (
  BackendError,
  Completion,
  Confidence,
  Message,
  Request,
)
from promptrl_jax.llm.cache import CachedBackend
from promptrl_jax.llm.ledger import Ledger, SpendConfig

ROOT = pathlib.Path(__file__).parents[2]


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


def test_batches_are_as_small_as_asked_and_kept_one_by_one(tmp_path):
  class Fails(Recorder):
    def complete(self, requests):
      if len(self.batches) == 2:
        raise BackendError('down')
      return super().complete(requests)

  path = tmp_path / 'cache.sqlite'
  requests = [ask(text) for text in 'abcde']
  inner = Fails()
  with pytest.raises(BackendError, match='down'):
    CachedBackend(inner, path, batch=2).complete(requests)
  assert [len(batch) for batch in inner.batches] == [2, 2]
  again = CachedBackend(Recorder(), path)
  texts = [c.text for c in again.complete(requests)]
  assert texts[:4] == ['answer 0', 'answer 1', 'answer 2', 'answer 3']
  assert (again.hits, again.misses) == (4, 1)
  with pytest.raises(ValueError, match='batch=0'):
    CachedBackend(Recorder(), batch=0)


class Servant(Recorder):
  """Hands out completions one by one, the last one first, and may break."""

  def __init__(self, breaks_after=10**9):
    super().__init__()
    self.asked, self.sizes = [], []
    self._left = breaks_after

  def complete_each(self, requests):
    self.sizes.append(len(requests))
    for i, request in reversed(list(enumerate(requests))):
      if not self._left:
        raise BackendError('down')
      self._left -= 1
      self.asked.append(request)
      text = f're: {request.messages[0].content}'
      yield i, Completion(text, 1, 1, 'stop')


def test_what_was_answered_before_a_failure_is_not_paid_for_again(tmp_path):
  path = tmp_path / 'cache.sqlite'
  requests = [ask(text) for text in 'abcde']
  first = CachedBackend(Servant(breaks_after=3), path)
  with pytest.raises(BackendError, match='down'):
    first.complete(requests)
  first.close()
  inner = Servant()
  again = CachedBackend(inner, path)
  texts = [c.text for c in again.complete(requests)]
  assert texts == ['re: a', 're: b', 're: c', 're: d', 're: e']
  assert inner.asked == [ask('b'), ask('a')]  # The last ones came first.
  assert (again.hits, again.misses) == (3, 2)


def test_an_answer_of_one_split_never_stands_in_for_another():
  inner = Recorder()
  cached = CachedBackend(inner)
  splits = ('', 'validation', 'test')
  texts = [cached.complete([ask(scope=s)])[0].text for s in splits]
  assert len(set(texts)) == 3
  assert [cached.complete([ask(scope=s)])[0].text for s in splits] == texts
  # It is no part of what the model is asked, and so is not of a greedy seed.
  assert cached.complete([ask(scope='test', seed=3)])[0].text == texts[2]


# --- In a file ----------------------------------------------------------------


def test_a_file_answers_in_the_next_process_as_well(tmp_path):
  path = tmp_path / 'deep' / 'cache.sqlite'
  requests = [ask(temperature=1.0, seed=s) for s in range(4)] + [ask()]
  with_file = CachedBackend(Recorder(), path)
  first = with_file.complete(requests)
  with_file.close()
  again = CachedBackend(Recorder(), path)
  assert again.complete(requests) == first
  assert (again.hits, again.misses) == (5, 0)
  assert len({c.text for c in first}) == 5


def test_confidence_is_kept_beside_rows_that_were_stored_without(tmp_path):
  sure = Completion('a', 1, 1, 'stop', Confidence(-0.5, -2.0, 0.25))

  class Sure(Recorder):
    def complete(self, requests):
      return [sure for _ in requests]

  path = tmp_path / 'cache.sqlite'
  with_row_of_four = CachedBackend(Recorder(), path)
  with_row_of_four.complete([ask('old')])
  CachedBackend(Sure(), path).complete([ask('new')])
  (row,) = sqlite3.connect(path).execute(
    "SELECT completion FROM completions WHERE completion LIKE '%answer%'"
  )
  assert json.loads(row[0]) == ['answer 0', 1, 1, 'stop']
  found = CachedBackend(Recorder(), path).complete([ask('old'), ask('new')])
  assert found == [Completion('answer 0', 1, 1, 'stop'), sure]


def test_another_model_or_identity_has_answers_of_its_own(tmp_path):
  class Other(Recorder):
    name = 'other'

  path = tmp_path / 'cache.sqlite'
  CachedBackend(Recorder(), path).complete([ask()])
  for backend in (
    CachedBackend(Other(), path),
    CachedBackend(Recorder(), path, identity='bfloat16'),
  ):
    backend.complete([ask()])
    assert backend.misses == 1


def test_any_text_comes_back_as_it_was(tmp_path):
  class Odd(Recorder):
    def complete(self, requests):
      return [Completion('\ud800 \x00 \u2028', 1, 2, 'length')] * len(requests)

  path = tmp_path / 'cache.sqlite'
  first = CachedBackend(Odd(), path).complete([ask('\ud800')])
  assert CachedBackend(Recorder(), path).complete([ask('\ud800')]) == first


def test_what_another_process_wrote_first_is_what_all_see(tmp_path):
  path = tmp_path / 'cache.sqlite'
  first = CachedBackend(Recorder(), path)

  class Late(Recorder):
    def complete(self, requests):
      first.complete(requests)  # While this one is still thinking.
      return [Completion('late', 1, 1, 'stop') for _ in requests]

  second = CachedBackend(Late(), path)
  assert second.complete([ask()]) == first.complete([ask()])


def test_a_failed_batch_leaves_the_file_usable(tmp_path):
  path = tmp_path / 'cache.sqlite'
  with pytest.raises(BackendError):
    CachedBackend(Recorder(dropped=1), path).complete([ask('a'), ask('b')])
  cached = CachedBackend(Recorder(), path)
  cached.complete([ask('a')])
  assert cached.misses == 1


def test_a_kill_loses_a_part_of_a_large_call(monkeypatch, tmp_path):
  monkeypatch.setattr(cache, '_BATCH', 2)
  requests = [ask(text) for text in 'abcde']
  inner = Recorder()
  CachedBackend(inner, tmp_path / 'cache.sqlite').complete(requests)
  assert [len(batch) for batch in inner.batches] == [2, 2, 1]
  inner = Recorder()
  CachedBackend(inner).complete(requests)  # A kill loses memory anyway.
  assert [len(batch) for batch in inner.batches] == [5]


def test_what_is_handed_out_one_by_one_is_asked_at_once_but_for_a_cap(
  monkeypatch, tmp_path
):
  monkeypatch.setattr(cache, '_BATCH', 2)
  requests = [ask(text) for text in 'abcde']
  for name, spend, sizes in (
    ('free', SpendConfig(), [5]),
    ('capped', SpendConfig(calls=9), [2, 2, 1]),
  ):
    inner = Servant()
    meter = Ledger(spend).meter('coder', inner, free=True)
    path = tmp_path / f'{name}.sqlite'
    CachedBackend(inner, path, meter=meter).complete(requests)
    assert inner.sizes == sizes


def test_files_that_are_no_cache_are_refused(tmp_path):
  text = tmp_path / 'text'
  text.write_text('no database, but long enough to be looked at' * 10)
  with pytest.raises(ValueError, match='is no cache of completions'):
    CachedBackend(Recorder(), text)
  other = tmp_path / 'other.sqlite'
  with sqlite3.connect(other) as database:
    database.execute('CREATE TABLE things (a)')
  with pytest.raises(ValueError, match='database of something else'):
    CachedBackend(Recorder(), other)
  with sqlite3.connect(tmp_path / 'new.sqlite') as database:
    database.execute('PRAGMA user_version = 7')
  with pytest.raises(ValueError, match='format 7, expected 2'):
    CachedBackend(Recorder(), tmp_path / 'new.sqlite')
  with pytest.raises(ValueError, match='no cache at'):
    CachedBackend(Recorder(), tmp_path)


def test_a_file_from_before_scopes_goes_on_with_one_answer_for_all(
  tmp_path, caplog
):
  path = tmp_path / 'cache.sqlite'
  old = CachedBackend(Recorder(), path)
  (first,) = old.complete([ask()])
  old.close()
  with sqlite3.connect(path) as database:  # As it was then.
    database.execute('DROP TABLE models')
    database.execute('PRAGMA user_version = 1')
  inner = Recorder()
  cached = CachedBackend(inner, path)
  assert 'all splits share its answers' in caplog.text
  for scope in ('', 'validation', 'test'):
    assert cached.complete([ask(scope=scope)]) == [first]
  assert cached.misses == 0
  cached.close()
  with sqlite3.connect(path) as database:
    assert database.execute('PRAGMA user_version').fetchone() == (1,)


# A process that writes batches of answers, with the batch in every text.
_WRITER = """
import sys
from promptrl_jax.llm.backend import Completion, Message, Request
from promptrl_jax.llm.cache import CachedBackend

class Numbers:
  name = 'numbers'
  def complete(self, requests):
    return [
      Completion(r.messages[0].content, 1, 1, 'stop') for r in requests
    ]

cached = CachedBackend(Numbers(), sys.argv[1])
print('ready', flush=True)
for batch in range(int(sys.argv[3])):
  cached.complete([
    Request((Message('user', f'{sys.argv[2]} {batch} {i}'),))
    for i in range(50)
  ])
  print(batch, flush=True)
"""


def start_writer(path, name, batches):
  return subprocess.Popen(
    [sys.executable, '-c', _WRITER, str(path), name, str(batches)],
    cwd=ROOT,
    stdout=subprocess.PIPE,
    text=True,
  )


def count_kept(path, name, batch):
  """How many of a batch are in the file."""
  recorder = Recorder()
  recorder.name = 'numbers'
  cached = CachedBackend(recorder, path)
  answers = cached.complete([ask(f'{name} {batch} {i}') for i in range(50)])
  texts = [answer.text for answer in answers]
  kept = [i for i, text in enumerate(texts) if not text.startswith('answer')]
  assert all(texts[i] == f'{name} {batch} {i}' for i in kept)
  return len(kept)


def test_several_processes_write_at_once_and_lose_nothing(tmp_path):
  path = tmp_path / 'cache.sqlite'
  writers = [start_writer(path, name, 20) for name in 'ab']
  for writer in writers:
    writer.communicate(timeout=60)
    assert writer.returncode == 0
  for name in 'ab':
    assert [count_kept(path, name, batch) for batch in (0, 19)] == [50, 50]


def test_a_killed_process_leaves_all_that_it_was_given(tmp_path):
  path = tmp_path / 'cache.sqlite'
  writer = start_writer(path, 'a', 100_000)
  assert writer.stdout is not None
  for line in writer.stdout:
    if line.strip() == '5':
      break
  writer.kill()  # SIGKILL, somewhere in the next batches.
  last = max([5, *(int(line) for line in writer.stdout)])
  writer.wait()
  # Batches are in the file as a whole, or not at all.
  assert all(count_kept(path, 'a', batch) == 50 for batch in range(last + 1))
  assert count_kept(path, 'a', last + 1) in (0, 50)
  assert count_kept(path, 'a', last + 3) == 0
