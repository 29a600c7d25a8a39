"""The page made with Gradio: its events, and the real thing where it is."""

import sys
import threading
import time

import pytest

from promptrl_jax.feedback import gradio_app
from promptrl_jax.feedback.errors import MalformedFeedback
from promptrl_jax.feedback.gradio_app import Sheet, events_of, next_sheet
from promptrl_jax.feedback.store import Store
from tests.feedback.build import answer, pair

TOKEN = 'token-of-the-test'


@pytest.fixture
def store(tmp_path):
  with Store.open(tmp_path / 'f') as store:
    yield store


def test_a_missing_extra_is_one_line(store, monkeypatch):
  monkeypatch.setitem(sys.modules, 'gradio', None)
  command = r"pip install 'promptrl_jax\[gradio\]'"
  with pytest.raises(ImportError, match=command):
    gradio_app.launch_standalone(store)
  with pytest.raises(ImportError, match=command):
    gradio_app.HumanFeedbackCollector(store).start()


def test_a_sheet_is_the_oldest_question_in_a_drawn_order(store):
  assert next_sheet(store) == Sheet()
  store.add_responses(pair())
  sheets = [next_sheet(store) for _ in range(40)]
  assert {(s.first, s.second) for s in sheets} == {('a', 'b'), ('b', 'a')}
  assert len({s.ticket for s in sheets}) == 40
  store.add_responses([answer('x', session='s')])
  assert next_sheet(store, 's').first == 'x'
  assert next_sheet(store, 's').second == ''


def test_choices_become_events(store):
  store.add_responses([answer('x'), *pair()])
  one = Sheet(ticket='t', first='x')
  events = events_of(one, 'Good', 4, None, 'fine')
  assert [(e.id, e.value, e.comment) for e in events] == [
    ('t-thumbs', 1, 'fine'),
    ('t-rating', 4, 'fine'),
  ]
  two = Sheet(ticket='u', first='b', second='a')
  (preference,) = events_of(two, None, None, 'Second', '')
  assert (preference.value, preference.other_id) == ('b', 'a')
  (skip,) = events_of(one, None, None, None, 'no idea')
  assert (skip.kind, skip.comment) == ('skip', 'no idea')
  store.add_events([*events, preference, skip])


def test_what_cannot_be_is_refused():
  with pytest.raises(MalformedFeedback, match='no question'):
    events_of(Sheet(), 'Good', None, None, '')
  with pytest.raises(MalformedFeedback, match="thumbs='Fine': expected one of"):
    events_of(Sheet(ticket='t', first='x'), 'Fine', None, None, '')


def client_of(collector):
  gradio_client = pytest.importorskip(
    'gradio_client', reason='the extra gradio is not installed'
  )
  return gradio_client.Client(
    collector.page.local_url, auth=(gradio_app.USER, TOKEN), verbose=False
  )


@pytest.fixture
def people(store):
  pytest.importorskip('gradio', reason='the extra gradio is not installed')
  collector = gradio_app.HumanFeedbackCollector(store, port=0, token=TOKEN)
  with collector:
    yield collector


def answers(client, *choices):
  """A person who waits for a question and answers it, in a thread."""

  def act():
    while not (shown := client.predict(api_name='/next'))[0]:
      time.sleep(0.1)
    client.predict(*shown[:3], *choices, api_name='/submit')

  thread = threading.Thread(target=act)
  thread.start()
  return thread


def test_a_rating_through_gradio_is_in_the_store(store, people):
  thread = answers(client_of(people), 'Good', 3, None, 'because')
  result = people.get_feedback('q?', 'an answer', timeout_s=60)
  thread.join()
  assert (result.thumbs_up, result.rating) == (True, 3.0)
  assert result.score == pytest.approx((1 + 0.5) / 2)
  assert [e.comment for e in store.events()] == ['because'] * 2
  assert store.response(result.response_ids[0]).text == 'an answer'


def test_a_preference_through_gradio_names_the_better_one(store, people):
  thread = answers(client_of(people), None, None, 'First', '')
  result = people.get_feedback_preference('q?', 'x', 'y', timeout_s=60)
  thread.join()
  (event,) = store.events()
  better = result.response_ids[result.preference_index]
  assert better == event.response_id
  assert result.score == float(result.preference_index == 0)


def test_without_a_person_the_wait_ends(people):
  assert people.get_feedback('q?', 'an answer', timeout_s=0.3) is None


def test_a_wrong_token_is_refused(people):
  gradio_client = pytest.importorskip('gradio_client')
  with pytest.raises(Exception, match=r'(?i)auth|credential|login|401'):
    gradio_client.Client(
      people.page.local_url, auth=(gradio_app.USER, 'wrong'), verbose=False
    )


def test_other_machines_are_kept_out(store):
  pytest.importorskip('gradio', reason='the extra gradio is not installed')
  with pytest.raises(ValueError, match='allow_remote=True'):
    gradio_app.launch_standalone(store, host='0.0.0.0')
