"""The page as axe-core sees it."""

from __future__ import annotations

import pytest

from promptrl_jax.feedback.store import Store
from tests.axe import axe as axe
from tests.axe import violations
from tests.feedback.build import answer, pair
from tests.feedback.web.person import Person, wait

pytest.importorskip('selenium', reason='selenium is not installed')
pytest.importorskip('starlette', reason='the extra serve is not installed')
pytest.importorskip('uvicorn', reason='the extra serve is not installed')
from selenium.webdriver.common.keys import Keys

from promptrl_jax.feedback.web.server import FeedbackServer

pytestmark = pytest.mark.slow
_SERIOUS = ('serious', 'critical')


@pytest.mark.parametrize('scheme', ['light', 'dark'])
@pytest.mark.parametrize('width', [360, 1280])
def test_axe_finds_nothing(browser, axe, tmp_path, width, scheme):
  with (
    Store.open(tmp_path / 'f') as store,
    FeedbackServer(store, can_ask_again=True) as page,
  ):
    text = 'Text.\n```\na = 1\n```'
    store.add_responses([answer('x', text=text), *pair()])
    person = Person(browser, page.url, width, 860, scheme)

    def check():
      found = violations(browser, axe)
      assert [each for each in found if each['impact'] in _SERIOUS] == []
      # What is left is of little weight; there is none at present.
      assert found == []

    check()
    for _ in range(2):
      person.press('x')
    check()
    person.press('e', '!', Keys.ESCAPE)
    check()
    person.press('?')
    check()
    person.press(Keys.ESCAPE, '1')
    wait(lambda: len(person.shown()) == 2)
    check()
    page.stop()
    person.press('t')
    person.sees('#status', 'does not answer')
    check()
