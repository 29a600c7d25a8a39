"""The loop behind the page, with a client that rates while it learns."""

import dataclasses
import json
import socket
import threading
import time
import uuid

import httpx
import pytest

from configs.hybrid import Config
from experiments import serving
from promptrl_jax.feedback.store import Store
from promptrl_jax.llm.backend import BackendError
from promptrl_jax.llm.templated import TemplatedBackend
from tests.training.gpro.small import BANK, make_loop, make_parts

pytest.importorskip('uvicorn', reason='the extra serve is not installed')
CONFIG = dataclasses.replace(Config(), queries=20, checkpoint_every=1)
TOKEN = 'a-token-that-tests-know'


class Interrupted(TemplatedBackend):
  """The model is lost while a question is answered."""

  def complete(self, requests):
    if requests[0].messages[-1].content == BANK[12]:
      raise BackendError('lost')
    return super().complete(requests)


@pytest.fixture(scope='module')
def parts():
  return make_parts()


def serve(parts, workdir, port, backend, timeout_s=0.0):
  loop = make_loop(parts, backend)
  workdir.mkdir(exist_ok=True)
  reward_fn = lambda human, expected, text: human
  serving.serve(
    CONFIG, workdir, loop, reward_fn, BANK, 'templated', port, timeout_s
  )
  return loop


def rate(port, is_over):
  """Rates whatever the page shows, whenever there is a page."""
  headers = {'Authorization': f'Bearer {TOKEN}'}
  address = f'http://127.0.0.1:{port}'
  with httpx.Client(base_url=address, headers=headers) as page:
    while not is_over.is_set():
      try:
        asked = page.get('/api/questions?wait_s=1').json()['questions']
        for question in asked:
          (response,) = question['responses']
          event = {
            **{'kind': 'explicit', 'scale': 'rating_1_5', 'value': 4},
            **{'id': uuid.uuid4().hex, 'response_id': response['id']},
            'at': time.time(),
          }
          sent = page.post('/api/events', json={'events': [event]})
          assert sent.status_code == 200, sent.text
      except httpx.TransportError:  # There is none now.
        time.sleep(0.05)


def test_a_person_rates_is_interrupted_and_rates_the_rest(
  parts, tmp_path, monkeypatch, capsys
):
  monkeypatch.setenv('PROMPTRL_FEEDBACK_TOKEN', TOKEN)
  with socket.socket() as found:
    found.bind(('127.0.0.1', 0))
    port = found.getsockname()[1]
  is_over = threading.Event()
  person = threading.Thread(target=rate, args=(port, is_over))
  person.start()
  try:
    with pytest.raises(BackendError, match='lost'):
      serve(parts, tmp_path / 'w', port, Interrupted())
    assert len(read(tmp_path)['ratings']) == 12
    loop = serve(parts, tmp_path / 'w', port, TemplatedBackend())
  finally:
    is_over.set()
    person.join()
  printed = capsys.readouterr().out
  assert f'http://127.0.0.1:{port}/?token={TOKEN}' in printed
  assert '| 20 of 20 | 0.750 | 0.750 |' in printed
  assert read(tmp_path)['ratings'] == [0.75] * 20 and loop.queries == 20
  with Store.open(tmp_path / 'w' / 'feedback.sqlite') as store:
    shown = store.responses()
    assert len(store.events()) == len(shown) == 20
  assert [one.query for one in shown] == BANK[:20]
  assert 'You are' in (tmp_path / 'w' / 'lineage.txt').read_text()
  # Nobody answers: it says so, and what is there stays.
  again = serve(parts, tmp_path / 'v', 0, TemplatedBackend(), timeout_s=0.01)
  assert again.queries == 1
  printed = capsys.readouterr().out
  assert 'nobody answered for 0.01 s after 0 of 20 ratings' in printed


def read(folder):
  return json.loads((folder / 'w' / 'results.json').read_text())
