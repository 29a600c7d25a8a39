"""The load that the page has to bear, and how fast a person can be."""

import time

import pytest

from promptrl_jax.feedback.store import Store
from tests.feedback.build import answer
from tests.feedback.web.person import Person

pytest.importorskip('starlette', reason='the extra serve is not installed')
pytest.importorskip('uvicorn', reason='the extra serve is not installed')
from experiments.bench.feedback import Load, measure
from promptrl_jax.feedback.web.server import FeedbackServer

pytestmark = pytest.mark.slow


def test_200_requests_a_second_lose_and_double_nothing(tmp_path):
  result = measure(Load(rate=200, connections=50, seconds=5), tmp_path)
  print(result)
  assert result['requests'] == 1000
  assert (result['failed'], result['lost'], result['doubled']) == (0, 0, 0)
  assert result['stored'] == 800  # Every fifth was sent twice.
  # One processor is enough for it; whether one is free is another matter.
  assert result['server_cpu_ms'] < 1000 / 200


def test_twenty_ratings_a_minute_by_keyboard(browser, tmp_path):
  count = 30
  with Store.open(tmp_path / 'f') as store, FeedbackServer(store) as page:
    store.add_responses(
      [answer(f'{i:02}', query=f'q{i}') for i in range(count)]
    )
    person = Person(browser, page.url)
    person.press('x')
    begin = time.monotonic()
    for i in range(count):
      person.sees('#query', f'q{i}')
      person.press(f'{i % 5 + 1}')
    person.sees('#empty-title', 'All done')
    per_minute = 60 * count / (time.monotonic() - begin)
    print(f'{per_minute:.0f} ratings a minute')
    assert per_minute > 20
    end = time.monotonic() + 30
    while store.progress().settled < count:
      assert time.monotonic() < end
      time.sleep(0.05)
