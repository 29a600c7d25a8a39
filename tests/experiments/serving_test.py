"""The loop behind the page, with a client that rates while it learns."""

import dataclasses
import itertools
import json
import socket
import threading
import time
import uuid

import httpx
import pytest

from configs.hybrid import Config
from experiments import asking, serving
from promptrl_jax.feedback.events import Explicit, Implicit, Preference, Undo
from promptrl_jax.feedback.store import Store
from promptrl_jax.llm.backend import BackendError
from promptrl_jax.llm.templated import TemplatedBackend
from promptrl_jax.training.gpro.people import People
from tests.training.gpro.small import BANK, make_loop, make_parts

pytest.importorskip('uvicorn', reason='the extra serve is not installed')
CONFIG = dataclasses.replace(Config(), queries=20, checkpoint_every=1)
TOKEN = 'a-token-that-tests-know'
IDS = itertools.count()
ASKED = [BANK[0], BANK[0], *BANK[1:4]]  # The first one twice, as in a file.


class Interrupted(TemplatedBackend):
  """The model is lost while a question is answered."""

  def complete(self, requests):
    if requests[0].messages[-1].content == BANK[12]:
      raise BackendError('lost')
    return super().complete(requests)


class Lost(TemplatedBackend):
  """A model that cannot be asked."""

  def complete(self, requests):
    raise BackendError('lost')


@pytest.fixture(scope='module')
def parts():
  return make_parts()


def serve(parts, workdir, port, backend, timeout_s=0.0):
  loop = make_loop(parts, backend)
  workdir.mkdir(exist_ok=True)
  reward_fn = lambda human, answer: human
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


@pytest.mark.slow
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
  page = (tmp_path / 'w' / 'lineage.html').read_text(encoding='utf-8')
  data = page.partition('id="report-data">')[2].partition('</script>')[0]
  members = json.loads(data)['members']
  assert sum(member['shown'] for member in members) == 20
  assert {m['liked'] for m in members if m['shown']} == {0.75}
  # Nobody answers: it says so, and what is there stays.
  again = serve(parts, tmp_path / 'v', 0, TemplatedBackend(), timeout_s=0.01)
  assert again.queries == 1
  printed = capsys.readouterr().out
  assert 'nobody answered for 0.01 s after 0 of 20 ratings' in printed


def read(folder):
  return json.loads((folder / 'w' / 'results.json').read_text())


@pytest.fixture
def store(tmp_path):
  with Store.open(tmp_path / 'feedback.sqlite') as opened:
    yield opened


def make(parts, store, texts=ASKED, **settings):
  people = People(make_loop(parts), store, 's', **settings)
  people.resume()
  return people, asking.Questions(store, 's', texts)


def say(store, kind, response, **fields):
  event = kind(id=f'e{next(IDS)}', response_id=response.id, at=0.0, **fields)
  store.add_event(event)
  return event


def ask_again(store, response):
  return say(store, Implicit, response, value=1, scale='asked_again')


def say_good(store, response):
  return say(store, Explicit, response, value=4, scale='rating_1_5')


def test_questions_come_in_their_order_and_from_the_beginning_again(
  parts, store
):
  for number in range(7):
    # Whoever begins in between goes on there.
    people, questions = make(parts, store)
    (response,) = questions.show_next(people)
    assert response.query == ASKED[number % 5]
    say_good(store, response)


def test_another_prompt_answers_what_is_asked_again(parts, store):
  people, questions = make(parts, store, BANK)
  texts, query = [], BANK[0]
  before = people.loop.population, people.loop.history
  (response,) = questions.show_next(people)
  for _ in range(4):
    texts.append(response.text)
    ask_again(store, response)
    people.collect()
    (response,) = questions.show_next(people)
    assert response.query == query
  assert len({*texts, response.text}) == 5
  assert (people.loop.population, people.loop.history) == before
  assert people.ratings == [0.0] * 4
  say_good(store, response)
  assert questions.show_next(people)[0].query == BANK[1]


def test_a_run_that_was_killed_still_owes_the_other_answer(parts, store):
  people, questions = make(parts, store, BANK)
  for _ in range(2):
    (response,) = questions.show_next(people)
    say_good(store, response)
  (response,) = questions.show_next(people)
  ask_again(store, response)
  people, questions = make(parts, store, BANK)
  assert not people.is_open
  (other,) = questions.show_next(people)
  assert (other.query, other.metadata['serial']) == (BANK[2], 3)
  assert other.text != response.text
  # It is killed once more, while that one is open.
  people, questions = make(parts, store, BANK)
  assert people.is_open and store.asked_again('s') == []
  say_good(store, other)
  assert questions.show_next(people)[0].query == BANK[3]


def test_what_was_taken_back_is_not_answered_again(parts, store):
  people, questions = make(parts, store, BANK)
  (response,) = questions.show_next(people)
  event = ask_again(store, response)
  say(store, Undo, response, event_id=event.id)
  assert people.is_open
  say_good(store, response)
  assert questions.show_next(people)[0].query == BANK[1]


def test_two_answers_make_way_for_two_others(parts, store):
  people, questions = make(parts, store, BANK, ask='pair')
  pair = questions.show_next(people)
  for response in pair:
    ask_again(store, response)
  assert people.collect() == 1
  assert people.ratings == [0.5]  # Neither is better than the other.
  others = questions.show_next(people)
  assert {r.query for r in others} == {BANK[0]} and len(others) == 2
  assert not {r.text for r in pair} & {r.text for r in others}


def test_the_second_of_two_loses_what_the_first_one_gains(parts, store):
  people, questions = make(parts, store, BANK, ask='pair')
  first, second = questions.show_next(people)
  assert {u.shown for u in serving.usage_of(people).values()} == {1}
  say(store, Preference, first, other_id=second.id, value='a')
  people.collect()
  usage = serving.usage_of(people)
  assert usage[first.prompt_id].heard == (1.0,)
  assert usage[second.prompt_id].heard == (0.0,)


def test_where_all_prompts_have_answered_all_may_again(parts, store):
  people, _ = make(parts, store)
  ids = [one.id for one in people.loop.population.individuals]
  with asking.without(people.loop, ids[1:]):
    assert [o.id for o in people.loop.population.individuals] == ids[:1]
  with asking.without(people.loop, ids):
    assert len(people.loop.population) == len(ids)


def test_a_model_that_is_lost_leaves_the_question_to_be_asked(parts, store):
  people, questions = make(parts, store, BANK)
  (response,) = questions.show_next(people)
  ask_again(store, response)
  lost = People(make_loop(parts, Lost()), store, 's')
  lost.resume()
  before = len(lost.loop.history)
  with pytest.raises(BackendError):
    questions.show_next(lost)
  assert len(lost.loop.history) == before
  assert [r.id for r in store.asked_again('s')] == [response.id]
