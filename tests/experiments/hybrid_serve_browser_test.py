"""The command that serves a person, with a browser in front of it.

A process of its own prints the link, and ends by signals while somebody rates
by keyboard. What the page has sent and got an answer to must be there after it,
and what it could not send must come in then.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys

import pytest

from promptrl_jax.feedback.store import Store
from tests.browser import browser as browser
from tests.experiments import commands
from tests.feedback.web.person import Person, wait

pytest.importorskip('selenium', reason='selenium is not installed')
pytest.importorskip('starlette', reason='the extra serve is not installed')
pytest.importorskip('uvicorn', reason='the extra serve is not installed')

pytestmark = pytest.mark.slow
TOKEN = 'a-token-that-outlives-a-run'
FLAGS = (
  *('--mode=serve', '--config=configs/hybrid.py:templated'),
  *('--config.queries=20', '--config.gpro.members=2'),
  *('--config.gpro.hidden=()', '--config.loop.bootstrap_queries=5'),
  '--config.loop.window=4',
)


@contextlib.contextmanager
def served(workdir, port):
  """The command, with the link that it prints; it is killed in the end."""
  with subprocess.Popen(
    [
      *(sys.executable, '-m', 'experiments.hybrid', *FLAGS),
      *(f'--workdir={workdir}', f'--port={port}'),
    ],
    cwd=commands.ROOT,
    env={**os.environ, 'PROMPTRL_FEEDBACK_TOKEN': TOKEN},
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
  ) as process:
    try:
      assert process.stdout is not None and process.stderr is not None
      line = process.stdout.readline()
      assert line, process.stderr.read()[-2000:]
      link = re.match(r'open (http://\S+\?token=\S+)', line)
      assert link, line
      yield process, link[1]
    finally:
      process.kill()


def end(process, number):
  process.send_signal(number)
  assert process.wait(60) == -number


class Rater:
  """Somebody who rates by keyboard, and what the store has of it."""

  def __init__(self, browser, link, store):
    self.person = Person(browser, link)
    self.person.run('localStorage.clear(); sessionStorage.clear()')
    self.person.reload()
    self._store = store
    self.rated: list[tuple[str, int]] = []

  def rate(self, count, until_sent=True):
    for _ in range(count):
      wait(self.sees_a_new_one)
      (response,) = self.person.shown()
      value = len(self.rated) % 2
      self.rated.append((response, value))
      self.person.press('+' if value else '-')
    if until_sent:
      wait(lambda: not self.waiting())

  def waiting(self):
    """How many ratings the page has got no answer for."""
    script = 'return Object.keys(localStorage).filter((k) => /waiting/.test(k))'
    return len(self.person.run(script))

  def stored(self):
    return [
      (e.response_id, e.value)
      for e in self._store.events()
      if e.kind == 'explicit'
    ]

  def sees_a_new_one(self):
    shown = self.person.shown()
    is_seen = self.person.run(
      'return !document.getElementById("question").hidden'
    )
    return (
      is_seen and shown and (not self.rated or shown[0] != self.rated[-1][0])
    )


def generation(workdir):
  return json.loads((workdir / 'results.json').read_text())['generation']


def test_no_rating_is_lost_when_the_command_is_ended_while_somebody_rates(
  browser, tmp_path
):
  workdir = tmp_path / 'w'
  with socket.socket() as found:
    found.bind(('127.0.0.1', 0))
    port = found.getsockname()[1]
  with contextlib.ExitStack() as stack:
    with served(workdir, port) as (process, link):
      store = stack.enter_context(Store.open(workdir / 'feedback.sqlite'))
      rater = Rater(browser, link, store)
      assert browser.current_url == f'http://127.0.0.1:{port}/'
      rater.rate(10)
      wait(lambda: len(store.responses()) == 11)  # It learned from the tenth.
      end(process, signal.SIGTERM)
    first = generation(workdir)
    assert first >= 1 and rater.stored() == rater.rated
    with served(workdir, port) as (process, again):
      assert again == link  # The page that is open goes on.
      rater.rate(3)
      wait(rater.sees_a_new_one)
      end(process, signal.SIGKILL)
    assert rater.stored() == rater.rated
    # What was open is rated while nobody is there to take it.
    rater.rate(1, until_sent=False)
    rater.person.sees('#status', '1 rating waits')
    assert len(rater.stored()) == 13
    with served(workdir, port) as (process, _):
      rater.person.reload()
      wait(lambda: not rater.waiting())
      assert rater.stored() == rater.rated
      rater.rate(6)
      assert process.wait(120) == 0
    assert rater.stored() == rater.rated
    serials = [response.metadata['serial'] for response in store.responses()]
  assert serials == list(range(20))
  results = json.loads((workdir / 'results.json').read_text())
  assert results['ratings'] == [float(value) for _, value in rater.rated]
  assert results['generation'] > first
  assert rater.person.problems() == []
