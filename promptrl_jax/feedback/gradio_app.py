"""A page made with Gradio, over the same store as `web`.

  launch_standalone(store)                    serves what is in a store
  with HumanFeedbackCollector(store) as people:
    people.get_feedback(query, answer, 60)    shows an answer and waits

It listens on loopback and asks for a name (`rater`) and a token. The page of
`web` does more: keys, undo, an outbox in the browser, no foreign fonts.
"""

from __future__ import annotations

import dataclasses
import hmac
import random
import secrets
import time
import uuid
from collections.abc import Sequence
from typing import Any

from promptrl_jax import extras
from promptrl_jax.feedback.aggregate import Weights, standing
from promptrl_jax.feedback.collector import FeedbackCollector
from promptrl_jax.feedback.errors import FeedbackError, MalformedFeedback
from promptrl_jax.feedback.events import (
  Event,
  Explicit,
  Preference,
  Response,
  Skip,
)
from promptrl_jax.feedback.store import Store
from promptrl_jax.feedback.web import routes
from promptrl_jax.feedback.web.server import is_loopback

USER = 'rater'
PORT = 7860
_LOOK_S = 1.0  # between looks for the next question
_THUMBS = {'Good': 1, 'Bad': 0}
_PREFERENCES = {'First': 'a', 'Same': 'tie', 'Second': 'b'}
_NOTHING = 'Nothing to rate now. This page looks again by itself.'


@dataclasses.dataclass(frozen=True)
class Sheet:
  """A question as it stands on the page.

  Attributes:
    ticket: drawn for each showing; the ids of its events begin with it, so that
      what is sent twice is stored once.
    first, second: ids of the responses; `second` is empty with one alone.
    query, first_text, second_text: what is read.
  """

  ticket: str = ''
  first: str = ''
  second: str = ''
  query: str = _NOTHING
  first_text: str = ''
  second_text: str = ''


@dataclasses.dataclass(frozen=True)
class FeedbackResult:
  """What a person said about an answer, or about two.

  Attributes:
    score: of the only or first answer, in [0, 1]; None after a skip.
    thumbs_up: None if no thumb was given.
    rating: from 1 to 5, or None.
    preference_index: 0 or 1 for the better one, None for a tie or no choice.
    response_ids: of the answers, as they are in the store.
    raw: the events themselves.
  """

  score: float | None
  thumbs_up: bool | None
  rating: float | None
  preference_index: int | None
  response_ids: tuple[str, ...]
  raw: tuple[Event, ...]


def next_sheet(store: Store, session: str | None = None) -> Sheet:
  """Returns the oldest open question, its answers in an order that is drawn."""
  open_questions = routes.questions(store, session, limit=1)['questions']
  if not open_questions:
    return Sheet()
  question = open_questions[0]
  shown = question['responses']
  random.SystemRandom().shuffle(shown)
  sheet = Sheet(
    ticket=uuid.uuid4().hex,
    first=shown[0]['id'],
    query=question['query'],
    first_text=shown[0]['text'],
  )
  if len(shown) == 1:
    return sheet
  return dataclasses.replace(
    sheet, second=shown[1]['id'], second_text=shown[1]['text']
  )


def events_of(
  sheet: Sheet,
  thumbs: str | None,
  rating: float | None,
  preference: str | None,
  comment: str,
) -> list[Event]:
  """Makes events of what was chosen; a skip if only words were given.

  Raises:
    MalformedFeedback: nothing is shown, or a choice is none of those offered.
  """
  if not sheet.ticket:
    raise MalformedFeedback('there is no question to rate: expected one')
  common: dict[str, Any] = {
    'response_id': sheet.first,
    'at': time.time(),
    'comment': comment or '',
    'metadata': {'first': sheet.first, 'page': 'gradio'},
  }
  events: list[Event] = []
  if thumbs:
    value = _chosen('thumbs', thumbs, _THUMBS)
    name = f'{sheet.ticket}-thumbs'
    events.append(Explicit(id=name, value=value, scale='thumbs', **common))
  if rating:
    name = f'{sheet.ticket}-rating'
    events.append(Explicit(id=name, value=rating, scale='rating_1_5', **common))
  if preference:
    value = _chosen('preference', preference, _PREFERENCES)
    name = f'{sheet.ticket}-preference'
    events.append(
      Preference(id=name, value=value, other_id=sheet.second, **common)
    )
  return events or [Skip(id=f'{sheet.ticket}-skip', **common)]


def _chosen(name: str, value: str, choices: dict[str, Any]) -> Any:
  if value not in choices:
    raise MalformedFeedback(
      f'{name}={value!r:.80}: expected one of {", ".join(choices)}'
    )
  return choices[value]


def build(store: Store, session: str | None = None) -> Any:
  """Returns the page as `gradio.Blocks`.

  Its endpoints `/next` and `/submit` can be called by `gradio_client`.

  Raises:
    ImportError: the extra `gradio` is not installed.
  """
  gr = extras.require('gradio', 'gradio', 'the Gradio page')

  def show(sheet: Sheet, message: str) -> list[Any]:
    is_pair = bool(sheet.second)
    return [
      sheet.ticket,
      sheet.first,
      sheet.second,
      sheet.query,
      gr.update(value=sheet.first_text, visible=bool(sheet.ticket)),
      gr.update(value=sheet.second_text, visible=is_pair),
      gr.update(value=None, visible=bool(sheet.ticket) and not is_pair),
      gr.update(value=None, visible=bool(sheet.ticket) and not is_pair),
      gr.update(value=None, visible=is_pair),
      '',
      message,
    ]

  def load() -> list[Any]:
    return show(next_sheet(store, session), '')

  def look(ticket: str) -> list[Any]:
    if ticket:  # What is being read is not taken away.
      return [gr.skip() for _ in fields]
    return load()

  def submit(
    ticket: str,
    first: str,
    second: str,
    thumbs: str | None,
    rating: float | None,
    preference: str | None,
    comment: str,
  ) -> list[Any]:
    sheet = Sheet(ticket=ticket, first=first, second=second)
    try:
      events = events_of(sheet, thumbs, rating, preference, comment)
      routes.add_events(store, session, events)
    except FeedbackError as error:
      raise gr.Error(f'{type(error).__name__}: {error}') from None
    score = FeedbackCollector(store).score(first)
    said = 'skipped' if score is None else f'score {score:.2f}'
    return show(next_sheet(store, session), f'Stored: {said}.')

  with gr.Blocks(title='Rate answers', analytics_enabled=False) as page:
    hidden = [gr.Textbox(visible=False) for _ in range(3)]
    query = gr.Textbox(label='Question', interactive=False)
    with gr.Row():
      answers = [
        gr.Textbox(label=label, interactive=False, lines=6)
        for label in ('First answer', 'Second answer')
      ]
    thumbs = gr.Radio(list(_THUMBS), label='Thumbs')
    rating = gr.Radio([1, 2, 3, 4, 5], label='Rating from 1 to 5')
    preference = gr.Radio(list(_PREFERENCES), label='Which one is better?')
    comment = gr.Textbox(label='Comment')
    button = gr.Button('Send; without a choice, skip', variant='primary')
    message = gr.Textbox(label='Last', interactive=False)
    choices = [thumbs, rating, preference, comment]
    fields = [*hidden, query, *answers, *choices, message]
    page.load(load, None, fields, api_name='next')
    inputs = [*hidden, *choices]
    button.click(submit, inputs, fields, api_name='submit')
    timer = gr.Timer(_LOOK_S)
    timer.tick(look, hidden[:1], fields, show_progress='hidden')
  return page


def launch_standalone(
  store: Store,
  host: str = '127.0.0.1',
  port: int = PORT,
  token: str | None = None,
  session: str | None = None,
  *,
  allow_remote: bool = False,
  block: bool = True,
) -> Any:
  """Serves what is in a store, and prints the address and the token.

  Args:
    token: password of the user `rater`; None: a new one.
    session: shows the responses of one session alone.
    allow_remote: has to be set for a host that other machines reach.
    block: returns only after Ctrl-C.

  Returns:
    The `gradio.Blocks`, which `close()` ends.

  Raises:
    ImportError: the extra `gradio` is not installed.
    ValueError: a host that other machines reach without `allow_remote`.
    OSError: the port is taken.
  """
  page = build(store, session)
  if not (allow_remote or is_loopback(host)):
    raise ValueError(
      f'host={host!r}: other machines reach it; expected 127.0.0.1, or '
      'allow_remote=True'
    )
  token = secrets.token_urlsafe(24) if token is None else token
  wanted = token.encode()

  def knows(user: str, password: str) -> bool:
    given = password.encode('utf-8', 'surrogatepass')
    return hmac.compare_digest(given, wanted) and user == USER

  page.launch(
    server_name=host,
    server_port=port or None,
    auth=knows,
    share=False,
    quiet=True,
    prevent_thread_lock=True,
  )
  print(f'open {page.local_url} as {USER} with {token}', flush=True)
  if block:
    page.block_thread()
  return page


class HumanFeedbackCollector:
  """Shows answers on a Gradio page and waits for what is said about them."""

  def __init__(
    self,
    store: Store,
    host: str = '127.0.0.1',
    port: int = PORT,
    token: str | None = None,
    session: str = '',
    *,
    prompt_id: str = '',
    weights: Weights = Weights(),
    allow_remote: bool = False,
  ):
    """Remembers the settings; `start`, or `with`, begins to serve.

    Args:
      session: an id of this run; empty: a new one. Only its answers are shown.
      prompt_id: the prompt that answers count for.
      host, port, token, allow_remote: see `launch_standalone`.
      weights: of the kinds of feedback, for scores.
    """
    self.store = store
    self.session = session or uuid.uuid4().hex
    self.page: Any = None
    self._people = FeedbackCollector(store, weights)
    self._prompt_id = prompt_id
    self._launch: dict[str, Any] = {
      'host': host,
      'port': port,
      'token': token,
      'allow_remote': allow_remote,
    }

  def __enter__(self) -> HumanFeedbackCollector:
    self.start()
    return self

  def __exit__(self, *unused: object) -> None:
    self.stop()

  def start(self) -> None:
    """Serves from threads of this process; see `launch_standalone`."""
    self.page = launch_standalone(
      self.store, session=self.session, block=False, **self._launch
    )

  def stop(self) -> None:
    """Ends the page; the store stays open."""
    if self.page is not None:
      self.page.close(verbose=False)
      self.page = None

  def get_feedback(
    self, query: str, response: str, timeout_s: float
  ) -> FeedbackResult | None:
    """Shows an answer; returns what is said, or None after the time-out.

    What comes later is stored all the same.
    """
    return self._ask(query, [response], timeout_s)

  def get_feedback_preference(
    self, query: str, first: str, second: str, timeout_s: float
  ) -> FeedbackResult | None:
    """Shows two answers side by side; see `get_feedback`."""
    return self._ask(query, [first, second], timeout_s)

  def _ask(
    self, query: str, texts: Sequence[str], timeout_s: float
  ) -> FeedbackResult | None:
    responses = [
      Response(
        id=uuid.uuid4().hex,
        query=query,
        text=text,
        prompt_id=self._prompt_id,
        session=self.session,
        shown_at=time.time(),
      )
      for text in texts
    ]
    self._people.show(*responses)
    # A preference settles the question, whichever answer it names.
    deadline = time.monotonic() + timeout_s
    while not self._raw(responses):
      if time.monotonic() >= deadline:
        return None
      self.store.wait(min(0.2, max(0.0, deadline - time.monotonic())))
    return self._result(responses)

  def _raw(self, responses: Sequence[Response]) -> tuple[Event, ...]:
    raw: dict[str, Event] = {}
    for response in responses:
      for event in standing(self.store.events(response.id)):
        raw[event.id] = event
    return tuple(raw.values())

  def _result(self, responses: Sequence[Response]) -> FeedbackResult:
    ids = tuple(response.id for response in responses)
    raw = self._raw(responses)
    ratings = {e.scale: e.value for e in raw if isinstance(e, Explicit)}
    thumb, rating = ratings.get('thumbs'), ratings.get('rating_1_5')
    better = None
    for event in raw:
      if isinstance(event, Preference) and event.value != 'tie':
        sides = {'a': event.response_id, 'b': event.other_id}
        better = ids.index(sides[str(event.value)])
    return FeedbackResult(
      score=self._people.score(ids[0]),
      thumbs_up=None if thumb is None else bool(thumb),
      rating=None if rating is None else float(rating),
      preference_index=better,
      response_ids=ids,
      raw=raw,
    )
