"""A person, played by a client of the page, rates answers while it learns."""

import contextlib
import json
import re
import sqlite3
import subprocess
import sys
import threading
import time
import uuid

import httpx
import pytest

from promptrl_jax.feedback.events import Explicit
from promptrl_jax.feedback.store import Store
from tests.experiments import commands

pytest.importorskip('uvicorn', reason='the extra serve is not installed')
FLAGS = (
  '--mode=serve',
  '--config=configs/hybrid.py:templated',
  '--port=0',
  '--config.queries=20',
  '--config.gpro.members=2',
  '--config.gpro.hidden=()',
  '--config.loop.bootstrap_queries=5',
  '--config.loop.window=4',
)


def rate(store):
  """Rates what is waiting; returns how much that was."""
  asked = store.pending()
  for responses in asked:
    (response,) = responses
    store.add_event(
      Explicit(
        id=uuid.uuid4().hex,
        response_id=response.id,
        at=time.time(),
        scale='rating_1_5',
        value=1 + len(response.text) % 5,
      )
    )
  return len(asked)


@pytest.mark.slow
def test_ten_ratings_by_the_page_a_kill_and_ten_more(tmp_path):
  workdir = tmp_path / 'w'
  command = [sys.executable, '-m', 'experiments.hybrid', *FLAGS]
  with subprocess.Popen(
    [*command, f'--workdir={workdir}'],
    cwd=commands.ROOT,
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
  ) as process:
    try:
      line = process.stdout.readline()
      assert line, process.stderr.read()[-2000:]
      address, token = re.match(r'open (\S+)\?token=(\S+)', line).groups()
      headers = {'Authorization': f'Bearer {token}'}
      with httpx.Client(base_url=address, headers=headers) as page:
        for number in range(10):
          (question,) = ask(page)
          (response,) = question['responses']
          assert question['query'] and response.keys() == {'id', 'text'}
          event = {
            **{'kind': 'explicit', 'scale': 'thumbs', 'value': number % 2},
            **{'id': uuid.uuid4().hex, 'response_id': response['id']},
            'at': time.time(),
          }
          sent = page.post('/api/events', json={'events': [event]})
          assert sent.json()['stored'] == [event['id']]
        ask(page)  # The tenth was learned from.
    finally:
      process.kill()
  with Store.open(workdir / 'feedback.sqlite') as store:
    assert len(store.events()) == 10
    is_over = threading.Event()

    def go_on():
      while not is_over.is_set():
        rate(store)
        store.wait(0.05)

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
      again = commands.run('experiments.hybrid', *FLAGS, f'--workdir={workdir}')
    finally:
      is_over.set()
      thread.join()
    assert again.returncode == 0, again.stderr[-2000:]
    responses = store.responses()
    # What was open when it was killed was asked once.
    assert [r.metadata['serial'] for r in responses] == list(range(20))
    assert len({r.session for r in responses}) == 1
  results = json.loads((workdir / 'results.json').read_text())
  assert len(results['ratings']) == 20 and results['generation'] >= 2
  assert results['ratings'][:10] == [0.0, 1.0] * 5
  assert '| 20 of 20 |' in (workdir / 'results.md').read_text()
  assert '─ ' in (workdir / 'lineage.txt').read_text()  # somebody's child
  prompts = json.loads((workdir / 'prompts.json').read_text())
  assert prompts and prompts[0]['fitness'] is not None


def ask(page):
  """What waits to be rated, once there is something."""
  deadline = time.monotonic() + 500
  while time.monotonic() < deadline:
    with contextlib.suppress(httpx.ReadTimeout):
      found = page.get('/api/questions?wait_s=5', timeout=60).json()
      if found['questions']:
        return found['questions']
  raise AssertionError('no question came')


@pytest.mark.slow
def test_it_ends_with_one_line_where_nobody_answers(tmp_path):
  (tmp_path / 'asked.txt').write_text('Why is the sky blue?\n\nWhat is rain?\n')
  flags = (
    *(*FLAGS, f'--workdir={tmp_path / "w"}', '--timeout_s=0.1'),
    '--config.queries=3',
  )
  asked = f'--queries={tmp_path / "asked.txt"}'
  result = commands.run('experiments.hybrid', *flags, asked)
  assert result.returncode == 0, result.stderr[-2000:]
  assert 'nobody answered for 0.1 s after 0 of 3 ratings' in result.stdout
  with Store.open(tmp_path / 'w' / 'feedback.sqlite') as store:
    (response,) = store.responses()
    assert response.query == 'Why is the sky blue?'
  # Other questions would have other features.
  result = commands.run('experiments.hybrid', *flags)
  assert result.returncode != 0 and 'Traceback' not in result.stderr
  assert 'queries' in result.stderr


def test_a_store_of_a_newer_version_is_one_line_and_left_alone(tmp_path):
  flags = (*FLAGS, f'--workdir={tmp_path}', '--timeout_s=0.1')
  path = tmp_path / 'feedback.sqlite'
  Store.open(path).close()
  with contextlib.closing(sqlite3.connect(path)) as database:
    database.execute('PRAGMA user_version = 99')
  before = path.read_bytes()
  result = commands.run('experiments.hybrid', *flags)
  assert result.returncode != 0 and 'Traceback' not in result.stderr
  assert '99' in result.stderr, result.stderr[-500:]
  assert path.read_bytes() == before


@pytest.mark.parametrize(
  ('flags', 'message'),
  [
    (('--config.ask=both',), "ask='both': expected one of one, pair"),
    (
      ('--config.reward=stars',),
      "reward='stars': expected one of rating, hybrid, hybrid_legacy",
    ),
    (('--config.safety=none',), "safety='none': expected one of disclosure"),
    (('--mode=simulate', '--queries=x'), 'expected --mode=serve'),
    (('--queries=/nowhere',), 'No such file'),
    (('--mode=simulate', '--config.queries=19'), 'expected 20 or more'),
  ],
)
def test_bad_input_is_one_clear_message(tmp_path, flags, message):
  result = commands.run(
    'experiments.hybrid', *FLAGS, f'--workdir={tmp_path / "w"}', *flags
  )
  assert result.returncode != 0 and 'Traceback' not in result.stderr
  assert message in result.stderr, result.stderr[-500:]
  assert not (tmp_path / 'w').exists()
