from __future__ import annotations

import contextlib
import threading
import time

import pytest

from promptrl_jax.llm.backend import BackendError, Completion, Message, Request
from promptrl_jax.llm.cache import CachedBackend
from promptrl_jax.llm.http import HttpBackend
from promptrl_jax.llm.http_config import HttpConfig
from promptrl_jax.llm.ledger import (
  Bound,
  BudgetExceeded,
  CapExceeded,
  Ledger,
  Price,
  SpendConfig,
  Usage,
)
from promptrl_jax.testing.fake_openai import FakeOpenAI
from promptrl_jax.testing.fake_server import Reply
from promptrl_jax.testing.scripted import ScriptedBackend

PRICES = (('scripted', 1.0, 10.0),)  # dollars per million tokens


def ask(text='one two three', **kwargs):
  return Request((Message('user', text),), **{'max_tokens': 20} | kwargs)


def buyer(ledger, role='coder', model=None, **settings):
  """A model whose calls are paid; one takes 10 and 5 tokens."""
  model = model or ScriptedBackend(lambda request: 'x')
  meter = ledger.meter(role, model, **settings)
  return CachedBackend(model, meter=meter), model


def test_tokens_and_seconds_are_counted_for_each_role():
  ledger = Ledger()
  answers = [Completion('x', 100, 10, 'stop'), Completion('y', 200, 20, 'stop')]
  ledger.reserve('generate', 2)
  ledger.record('generate', answers, seconds=1.5)
  ledger.reserve('reflect')
  ledger.record('reflect', answers[:1], seconds=0.5)
  assert ledger.roles['generate'] == Usage(2, 300, 30, 1.5)
  assert ledger.roles['reflect'] == Usage(1, 100, 10, 0.5)
  assert ledger.spent == Usage(3, 400, 40, 2.0)


def test_only_what_is_bought_is_charged_and_at_its_price():
  ledger = Ledger(SpendConfig(prices=PRICES))
  cached, _ = buyer(ledger)
  cached.complete([ask('a'), ask('b')])
  cached.complete([ask('b'), ask('c')])
  usage = ledger.roles['coder']
  assert (usage.calls, usage.prompt_tokens, usage.completion_tokens) == (
    *(3, 30, 15),
  )
  assert usage.dollars == pytest.approx((30 * 1.0 + 15 * 10.0) / 1e6)
  assert usage.seconds > 0


def test_a_batch_beyond_the_cap_on_calls_is_refused_before_it_is_made():
  ledger = Ledger(SpendConfig(calls=3))
  cached, model = buyer(ledger)
  cached.complete([ask('a'), ask('b')])
  with pytest.raises(CapExceeded, match='spend.calls=3: 2 are spent') as caught:
    cached.complete([ask('c'), ask('d')])
  assert [len(batch) for batch in model.batches] == [2]
  # It is a refusal, and a failure of the system to whoever looks for one.
  assert isinstance(caught.value, BudgetExceeded | BackendError)
  cached.complete([ask('a'), ask('b'), ask('c')])  # Two of them are cached.
  assert ledger.spent.calls == 3


@pytest.mark.parametrize(
  ('caps', 'fits'),
  # Prompts are 3 words and 4 tokens of a template, completions 20 at most.
  [
    ({'tokens': 27}, 1),
    ({'tokens': 26}, 0),
    ({'dollars': 207e-6}, 1),
    ({'dollars': 206e-6}, 0),
  ],
)
def test_the_most_that_a_call_may_use_is_what_is_refused(caps, fits):
  ledger = Ledger(SpendConfig(**caps, prices=PRICES))
  cached, model = buyer(ledger)
  name = next(iter(caps))
  with pytest.raises(CapExceeded, match=f'spend.{name}='):
    for i in range(2):
      cached.complete([ask(seed=i, temperature=1.0)])
  assert len(model.batches) == fits


def test_what_was_not_used_may_be_spent():
  # Each call may use 27 tokens and uses 15.
  cached, model = buyer(Ledger(SpendConfig(tokens=60)))
  for i in range(3):
    cached.complete([ask(seed=i, temperature=1.0)])
  with pytest.raises(CapExceeded, match='tokens=60: 45 are'):
    cached.complete([ask(seed=3, temperature=1.0)])
  assert len(model.batches) == 3


def test_no_cap_is_exceeded_by_eight_threads():
  made, most_open = [], [0]
  lock = threading.Lock()
  under_way = 0

  def slow(request):
    nonlocal under_way
    with lock:
      under_way += 1
      most_open[0] = max(most_open[0], under_way)
      made.append(request)
    time.sleep(0.001)
    with lock:
      under_way -= 1
    return 'x'

  ledger = Ledger(SpendConfig(calls=100, tokens=1300, prices=PRICES))
  model = ScriptedBackend(slow)
  refused = []

  def spend(thread):
    cached, _ = buyer(ledger, f'role {thread % 2}', model)
    for i in range(40):
      try:
        cached.complete([ask(f'{thread} {i} z')])
      except CapExceeded as error:
        refused.append(error)

  threads = [threading.Thread(target=spend, args=(i,)) for i in range(8)]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  spent = ledger.spent
  assert most_open[0] > 1
  assert len(made) == spent.calls <= 100
  tokens = spent.prompt_tokens + spent.completion_tokens
  assert tokens == 15 * len(made) <= 1300
  assert tokens > 1300 - 15 - 8 * 27  # And the cap is nearly used up.
  assert len(refused) == 320 - len(made)


def test_calls_without_an_answer_are_taken_back():
  def break_down(request):
    raise BackendError('down')

  ledger = Ledger(SpendConfig(calls=5, tokens=100))
  cached, _ = buyer(ledger, model=ScriptedBackend(break_down))
  for _ in range(9):
    with pytest.raises(BackendError, match='down'):
      cached.complete([ask()])
  assert ledger.spent.calls == 0


def test_a_server_that_dies_in_the_middle_is_not_paid_twice(tmp_path):
  def answer(body):
    text = body['messages'][0]['content']
    return Reply(400) if text == 'bad' and not mended else f're: {text}'

  mended = False
  config, requests = SpendConfig(calls=4), [ask(t) for t in ('a', 'b', 'bad')]
  with FakeOpenAI(answer) as server:
    http = HttpConfig(server.url, max_retries=0, concurrency=1)

    def run():
      """One process: its ledger and its cache lie in files."""
      ledger = Ledger(config, tmp_path / 'ledger.json')
      model = HttpBackend('m', http)
      meter = ledger.meter('coder', model)
      cached = CachedBackend(model, tmp_path / 'cache.sqlite', meter=meter)
      with contextlib.closing(cached):
        return cached.complete(requests), ledger

    with pytest.raises(BackendError, match='HTTP 400'):
      run()
    assert len(server.bodies) == 3
    mended = True
    completions, ledger = run()
    assert [c.text for c in completions] == ['re: a', 're: b', 're: bad']
    assert len(server.bodies) == 4  # Only the one that failed was asked again.
    # The cap is that of both processes: one call is left.
    assert ledger.spent.calls == 3
    requests = [ask('c'), ask('d')]
    with pytest.raises(CapExceeded, match='calls=4: 3 are spent'):
      run()
    assert len(server.bodies) == 4


def test_a_model_without_a_price_is_an_error_only_if_dollars_are_capped():
  paid = ScriptedBackend(lambda request: 'x')
  capped = Ledger(SpendConfig(dollars=1.0))
  with pytest.raises(ValueError, match="needs the price of 'scripted': give"):
    capped.meter('coder', paid)
  capped.meter('coder', paid, free=True)
  Ledger(SpendConfig(calls=1)).meter('coder', paid)
  # A name may carry a hash of the model.
  config = SpendConfig(dollars=1.0, prices=(('q:1b', 2.0, 4.0),))
  assert config.price('q:1b@0123') == config.price('q:1b') == Price(2.0, 4.0)


def test_a_dry_run_says_what_it_would_ask_and_asks_nothing():
  ledger = Ledger(SpendConfig(dry_run=True, prices=PRICES))
  cached, model = buyer(ledger)
  message = r'dry run: 2 calls of the coder, of at most 54 tokens and \$0.0004'
  with pytest.raises(CapExceeded, match=message):
    cached.complete([ask(), ask(seed=1, temperature=1.0)])
  assert not model.batches and ledger.spent == Usage()


@pytest.mark.parametrize(
  'settings',
  [
    {'calls': -1},
    {'dollars': float('nan')},
    {'prices': (('m', -1.0, 0.0),)},
  ],
)
def test_caps_and_prices_that_make_no_sense_are_refused(settings):
  with pytest.raises(ValueError, match='spend.*expected 0 or more'):
    SpendConfig(**settings)


def test_a_file_that_is_no_ledger_is_refused(tmp_path):
  path = tmp_path / 'ledger.json'
  for text in ('[1]', '{"coder": {"cals": 1}}', '{'):
    path.write_text(text)
    with pytest.raises(ValueError, match='is not the ledger of a run'):
      Ledger(path=path)


def test_a_kill_leaves_reserved_calls_counted(tmp_path):
  path = tmp_path / 'ledger.json'
  Ledger(path=path).reserve('coder', 7, Bound(100))
  assert Ledger(path=path).spent.calls == 7
