"""The page in headless Chromium, by keyboard. Needs docs/testing.md."""

from __future__ import annotations

import time

import pytest

from promptrl_jax.feedback.store import Store
from tests.feedback.build import answer, skip
from tests.feedback.web.person import Person, wait

pytest.importorskip('selenium', reason='selenium is not installed')
pytest.importorskip('starlette', reason='the extra serve is not installed')
pytest.importorskip('uvicorn', reason='the extra serve is not installed')
from selenium.webdriver.common.keys import Keys

from promptrl_jax.feedback.web.server import FeedbackServer

HOSTILE = (
  '<img src=x onerror="window.hurt = 1"><script>window.hurt = 1</script>'
)
CODE = 'Text.\n\n```python\ndef f():\n  return 1\n```\nMore.'


@pytest.fixture
def store(tmp_path):
  with Store.open(tmp_path / 'f') as store:
    yield store


@pytest.fixture
def page(store):
  with FeedbackServer(store) as page:
    yield page


def ask(store, *names):
  """Stores a question for each name, with one answer."""
  for name in names:
    store.add_response(answer(name, query=f'Question {name}?', text=name * 3))


def ask_pair(store, name):
  fields = {'query': f'Question {name}?', 'question_id': name}
  store.add_responses(
    [answer(f'{name}{i}', text=f'answer {i}', **fields) for i in (1, 2)]
  )


def stored(store, *kinds):
  return [event for event in store.events() if event.kind in kinds]


def forget(person):
  person.run('localStorage.clear(); sessionStorage.clear()')
  person.reload()


def test_ten_answers_by_keyboard_alone(browser, store, page):
  ask(store, *'abcdefg')
  for name in 'xyz':
    ask_pair(store, name)
  person = Person(browser, page.url)
  assert browser.current_url == page.address  # without the token
  forget(person)
  person.sees('#query', 'Question a?')
  assert person.text('#progress-text') == '0 of 10 answered'
  person.press('+')  # Thumbs are the first scale.
  person.sees('#query', 'Question b?')
  person.press('d')
  person.sees('#query', 'Question c?')
  person.press('x', '4')  # the scale from 1 to 5
  person.sees('#query', 'Question d?')
  person.press('c')
  assert person.focused() == 'comment'
  person.press('s 5 z', Keys.ESCAPE, '5')  # Words are no commands.
  person.sees('#query', 'Question e?')
  person.press('x', '0')
  person.sees('#query', 'Question f?')
  person.press('e', ' corrected')
  person.press_with_control(Keys.ENTER)
  person.sees('#query', 'Question g?')
  person.press('s')
  sides = []
  for name, key in (('x', Keys.ARROW_LEFT), ('y', '='), ('z', 'b')):
    person.sees('#query', f'Question {name}?')
    sides.append(person.shown())
    person.press(key)
  person.sees('#empty-title', 'All done')
  assert person.text('#progress-text') == '10 of 10 answered'
  wait(lambda: store.progress().settled == 10)
  ratings = [
    (e.response_id, e.scale, e.value, e.comment)
    for e in stored(store, 'explicit')
  ]
  assert ratings == [
    ('a', 'thumbs', 1, ''),
    ('b', 'thumbs', 0, ''),
    ('c', 'rating_1_5', 4, ''),
    ('d', 'rating_1_5', 5, 's 5 z'),
    ('e', 'rating_1_10', 10, ''),
  ]
  (correction,) = stored(store, 'correction')
  assert (correction.response_id, correction.value) == ('f', 'fff corrected')
  assert [e.response_id for e in stored(store, 'skip')] == ['g']
  preferences = [
    (e.response_id, e.other_id, e.value, e.metadata['first'])
    for e in stored(store, 'preference')
  ]
  assert preferences == [
    (*shown, value, shown[0])
    for shown, value in zip(sides, ('a', 'tie', 'b'), strict=True)
  ]
  times = {e.response_id: e.value for e in stored(store, 'implicit')}
  assert set(times) == set('abcdef')
  assert all(0 <= value < 60 for value in times.values())
  assert len({e.rater for e in store.events()}) == 1
  assert person.problems() == []


@pytest.mark.slow
def test_undo_shows_the_last_one_again(browser, store, page):
  ask(store, 'a', 'b')
  person = Person(browser, page.url)
  forget(person)
  person.press('c', 'because', Keys.ESCAPE, '-')
  person.sees('#query', 'Question b?')
  person.press('z')
  person.sees('#query', 'Question a?')
  assert person.run('return document.getElementById("comment").value')
  assert person.text('#progress-text') == '0 of 2 answered'
  person.press('u')
  person.sees('#query', 'Question b?')
  person.press('u')
  person.sees('#empty-title', 'All done')
  person.reload()  # What can be taken back outlives it.
  person.press('z', 'z')
  person.sees('#query', 'Question a?')
  wait(lambda: store.progress().settled == 0)
  values = [(e.response_id, e.value) for e in stored(store, 'explicit')]
  assert values == [('a', 0), ('a', 1), ('b', 1)]
  # Reading times are taken back with the ratings.
  assert len(stored(store, 'undo')) == 6


def test_a_reload_in_the_middle_keeps_words_and_order(browser, store, page):
  ask_pair(store, 'x')
  person = Person(browser, page.url)
  person.sees('#query', 'Question x?')
  order = person.shown()
  person.press('c', 'half a sen', Keys.ESCAPE, 'E', '!')
  time.sleep(0.3)
  person.reload()
  person.sees('#query', 'Question x?')
  assert person.shown() == order
  person.press('c', 'tence', Keys.ESCAPE, 't')
  person.sees('#empty-title', 'All done')
  wait(lambda: store.progress().settled == 1)
  (preference,) = stored(store, 'preference')
  assert preference.comment == 'half a sentence'
  (correction,) = stored(store, 'correction')
  assert correction.response_id == order[1]
  assert correction.value.endswith('!')
  assert preference.metadata['seconds'] >= 0.3


@pytest.mark.slow
def test_two_tabs_do_not_ask_the_same_twice(browser, store, page):
  ask(store, 'a', 'b')
  one = Person(browser, page.url)
  one.sees('#query', 'Question a?')
  browser.switch_to.new_window('tab')
  try:
    two = Person(browser, page.url)
    two.sees('#query', 'Question a?')
    two.press('+')
    two.sees('#query', 'Question b?')
    one.turn()
    one.sees('#query', 'Question b?')
    one.press('-')
    one.sees('#empty-title', 'All done')
    two.turn()
    two.sees('#empty-title', 'All done')
  finally:
    browser.close()
    one.turn()
  values = [(e.response_id, e.value) for e in stored(store, 'explicit')]
  assert values == [('a', 1), ('b', 0)]


@pytest.mark.slow
def test_what_was_rated_while_the_server_was_down_comes_in(browser, store):
  ask(store, 'a', 'b', 'c')
  with FeedbackServer(store) as first:
    person = Person(browser, first.url)
    person.press('+')
    person.sees('#query', 'Question b?')
    wait(lambda: store.progress().settled == 1)
  person.press('-')
  person.sees('#query', 'Question c?')
  person.sees('#status', '1 rating waits; the server does not answer')
  assert person.text('#progress-text') == '2 of 3 answered'
  # A browser that is closed and opened again has it still.
  person.run('window.dispatchEvent(new Event("pagehide"))')
  with FeedbackServer(store, first.port, token=first.token):
    wait(lambda: store.progress().settled == 2)
    wait(lambda: 'does not answer' not in person.text('#status'))
    person.press('+')
    person.sees('#empty-title', 'All done')
    wait(lambda: store.progress().settled == 3)
  values = [(e.response_id, e.value) for e in stored(store, 'explicit')]
  assert values == [('a', 1), ('b', 0), ('c', 1)]


@pytest.mark.slow
def test_an_answer_that_got_lost_is_sent_again_and_stored_once(
  browser, store, page
):
  ask(store, 'a')
  person = Person(browser, page.url)
  person.run("""
    const send = window.fetch;
    let lost = 0;
    window.fetch = async (path, options) => {
      const reply = await send(path, options);
      if (path.includes('events') && lost++ < 1) throw new TypeError('cut');
      return reply;
    };
  """)
  person.press('+')
  person.sees('#empty-title', 'All done')
  person.sees('#status', 'does not answer')
  wait(lambda: 'does not answer' not in person.text('#status'))
  assert len(stored(store, 'explicit')) == 1
  waiting = 'return Object.keys(localStorage).filter(k => /waiting/.test(k))'
  assert person.run(waiting) == []


@pytest.mark.slow
def test_what_is_refused_is_shown_and_kept(browser, store, page):
  ask(store, 'a', 'b')
  person = Person(browser, page.url)
  # As if the scale had been changed on the server's side.
  person.run("""
    const send = window.fetch;
    window.fetch = (path, options = {}) => send(path, {
      ...options, body: options.body?.replace('thumbs', 'hands'),
    });
    document.querySelector('input[value=thumbs]').click();
  """)
  person.press('+')
  person.sees('#status', "Refused: scale 'hands'")
  assert store.events() == []
  person.click('#open-refused')
  assert "Good – scale 'hands'" in person.text('#refused-list')
  person.press(Keys.ESCAPE)
  person.reload()
  assert person.text('#open-refused') == '1 refused rating'
  person.click('#refused-list button')
  assert person.run('return document.getElementById("open-refused").hidden')
  assert person.text('#query') == 'Question a?'  # It is not answered yet.


@pytest.mark.slow
def test_a_new_question_appears_by_itself(browser, store, page):
  person = Person(browser, page.url)
  assert person.text('#empty-title') == 'Nothing to rate now.'
  assert 'looks again by itself' in person.text('#empty-text')
  begin = time.monotonic()
  ask(store, 'a')
  person.sees('#query', 'Question a?')
  assert time.monotonic() - begin < 3
  assert person.text('#live') == 'New question. One answer. Question a?'
  store.add_event(skip('1', 'a'))  # Somebody else does.
  person.sees('#empty-title', 'All done')
  assert person.problems() == []


@pytest.mark.slow
def test_words_are_not_taken_away_by_somebody_elses_answer(
  browser, store, page
):
  ask(store, 'a', 'b')
  person = Person(browser, page.url)
  person.press('c', 'long thoughts')
  store.add_event(skip('1', 'a'))
  person.sees('#note', 'Somebody else answered')
  assert person.text('#query') == 'Question a?'
  person.press(Keys.ESCAPE, 'x', '3')
  person.sees('#query', 'Question b?')


@pytest.mark.slow
def test_answers_are_text_and_code_is_monospaced(browser, store, page):
  store.add_response(answer('a', query=HOSTILE, text=f'{HOSTILE}\n\n{CODE}'))
  person = Person(browser, page.url)
  assert person.text('#query') == HOSTILE
  assert HOSTILE in person.text('.text')
  assert person.texts('.text pre') == ['def f():\n  return 1']
  assert person.texts('.text p')[1:] == ['More.']
  assert person.run('return window.hurt') is None
  font = 'return getComputedStyle(document.querySelector("pre")).fontFamily'
  assert 'monospace' in person.run(font)
  person.run(
    'const range = document.createRange();'
    'range.selectNodeContents(document.querySelector(".text"));'
    'getSelection().addRange(range)'
  )
  person.press_with_control('c')
  person.press('s', 'z')
  person.sees('#query', 'img')
  person.press('x', '5')
  wait(lambda: stored(store, 'explicit'))
  scales = [(e.scale, e.value) for e in stored(store, 'implicit')][:1]
  assert scales == [('copied', 1)]


@pytest.mark.slow
def test_the_scale_is_remembered_and_its_keys_listed(browser, store, page):
  ask(store, 'a')
  person = Person(browser, page.url)
  person.run('document.querySelector("input[value=rating_1_10]").click()')
  person.reload()
  numbers = ' '.join(person.texts('#rating button .face'))
  assert numbers == '1 2 3 4 5 6 7 8 9 10'
  person.press('?')
  assert 'take the last one back' in person.text('#help')
  person.press('5')  # Nothing is rated behind a dialog.
  person.press(Keys.ESCAPE)
  person.run('document.getElementById("keys-on").click()')
  person.press('5')
  assert person.text('#query') == 'Question a?' and store.events() == []
  person.run('document.getElementById("keys-on").click()')
  person.press('5')
  person.sees('#empty-title', 'All done')


@pytest.mark.parametrize(
  'width',
  [
    pytest.param(320, marks=pytest.mark.slow),
    360,
    pytest.param(1280, marks=pytest.mark.slow),
  ],
)
def test_the_page_never_scrolls_sideways(browser, store, page, width):
  long = 'word' * 60
  store.add_response(answer('a', query=long, text=f'{long}\n```\n{long}\n```'))
  store.add_responses(
    [answer(i, query='q', text=f'```\n{long}', question_id='q') for i in 'xy']
  )
  person = Person(browser, page.url, width, 740)
  assert person.width_beyond() == 0
  for name in ('thumbs', 'rating_1_5', 'rating_1_10'):
    person.click(f'input[value={name}]')
    assert person.width_beyond() == 0
  person.press('e')
  assert person.width_beyond() == 0
  person.press(Keys.ESCAPE, '1')
  wait(lambda: len(person.shown()) == 2)
  assert person.width_beyond() == 0
  person.press('?')
  assert person.width_beyond() == 0
  person.press(Keys.ESCAPE, 't')
  person.sees('#empty-title', 'All done')
  assert person.width_beyond() == 0


@pytest.mark.slow
def test_which_answer_stands_first_is_drawn_by_lot(browser, page):
  person = Person(browser, page.url)
  first = person.browser.execute_async_script("""
    const done = arguments[0];
    import('/ids.js').then(({ inOrder }) => {
      const responses = [{ id: 'a' }, { id: 'b' }];
      const order = (i, rater) =>
        inOrder({ question_id: `q${i}`, responses }, rater)[0].id;
      const draws = (rater) =>
        Array.from({ length: 2000 }, (_, i) => order(i, rater) === 'a');
      done([draws('r1'), draws('r1'), draws('r2')]);
    });
  """)
  assert first[0] == first[1]
  for draws in (first[0], first[2]):
    assert 0.45 < sum(draws) / 2000 < 0.55
  same = sum(a == b for a, b in zip(first[0], first[2], strict=True))
  assert 0.45 < same / 2000 < 0.55


@pytest.mark.slow
def test_another_token_keeps_the_ratings_and_says_what_to_do(browser, store):
  ask(store, 'a', 'b')
  with FeedbackServer(store) as first:
    person = Person(browser, first.url)
  person.press('s')
  person.sees('#query', 'Question b?')
  with FeedbackServer(store, first.port) as second:
    person.sees('#status', 'needs the link that the program printed')
    assert store.events() == []
    person.open(second.url)
    wait(lambda: store.progress().settled == 1)
    person.sees('#query', 'Question b?')


def give_another(store):
  """Answers what was asked again, as the program behind the page does."""
  wait(store.asked_again)
  response = store.asked_again()[0]
  name = f'{response.id}2'
  store.add_response(answer(name, query=response.query, text='another'))


def test_who_asks_again_gets_another_answer(browser, store):
  ask(store, 'a')
  with FeedbackServer(store, can_ask_again=True) as page:
    person = Person(browser, page.url)
    forget(person)
    name = browser.find_element('id', 'again').accessible_name
    assert name == 'Ask again for another answer to this question r'
    person.press('c', 'too short', Keys.ESCAPE, 'r')
    person.sees('#empty-title', 'Another answer is on its way.')
    person.sees('#status', 'Asked again.')
    give_another(store)
    person.sees('.text', 'another')
    assert person.text('#note') == 'You asked again: here is another answer.'
    said = 'You asked again. One answer. Question a?'
    assert person.text('#live') == said
    person.press('+')
    person.sees('#empty-title', 'All done')
    wait(lambda: store.progress().settled == 2)
    again, read = stored(store, 'implicit')[:2]
    assert (again.response_id, again.scale, again.value, again.comment) == (
      'a',
      'asked_again',
      1,
      'too short',
    )
    assert (read.response_id, read.scale) == ('a', 'reading_time')
    (rating,) = stored(store, 'explicit')
    assert (rating.response_id, rating.value) == ('a2', 1)
    assert store.asked_again() == [] and person.problems() == []


def test_where_nobody_gives_another_answer_nobody_can_ask_again(
  browser, store, page
):
  ask(store, 'a')
  person = Person(browser, page.url)
  assert person.run('return document.getElementById("again").hidden')
  person.press('r')
  assert person.text('#query') == 'Question a?' and store.events() == []


@pytest.mark.slow
def test_asking_again_outlives_a_lost_server_a_reload_and_another_tab(
  browser, store
):
  ask(store, 'a')
  with FeedbackServer(store, can_ask_again=True) as first:
    one = Person(browser, first.url)
    forget(one)
    browser.switch_to.new_window('tab')
    two = Person(browser, first.url)
    two.sees('#query', 'Question a?')
  try:
    two.press('r')  # Nobody is there.
    two.sees('#status', '1 rating waits')
    browser.close()
    one.turn()
    assert store.events() == []
    with FeedbackServer(
      store, first.port, token=first.token, can_ask_again=True
    ):
      one.reload()
      one.sees('#empty-title', 'All done')
      give_another(store)
      one.sees('.text', 'another')
      # It is taken back nowhere but in the tab that asked.
      one.press('r')
      wait(store.asked_again)
      one.reload()
      one.press('z')
      one.sees('.text', 'another')
      wait(lambda: not store.asked_again())
      one.press('+')
      one.sees('#empty-title', 'All done')
      wait(lambda: store.progress().settled == 2)
  finally:
    one.turn()
  values = [(e.response_id, e.kind) for e in store.events()]
  assert values == [
    ('a', 'implicit'),
    ('a', 'implicit'),
    *[('a2', 'implicit')] * 2,
    *[('a2', 'undo')] * 2,
    ('a2', 'explicit'),
    ('a2', 'implicit'),
  ]


@pytest.mark.slow
def test_two_answers_are_asked_again_together(browser, store):
  ask_pair(store, 'x')
  with FeedbackServer(store, can_ask_again=True) as page:
    person = Person(browser, page.url)
    forget(person)
    person.click('#again')
    wait(lambda: len(store.asked_again()) == 2)
    assert store.progress().settled == 1
  assert {e.response_id for e in store.events()} == {'x1', 'x2'}
  assert {e.scale for e in store.events()} == {'asked_again'}
