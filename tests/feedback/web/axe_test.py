"""The page as axe-core sees it, which npm fetches for this test alone."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess

import pytest

from promptrl_jax.feedback.store import Store
from tests.feedback.build import answer, pair
from tests.feedback.web.person import Person, wait

pytest.importorskip('selenium', reason='selenium is not installed')
pytest.importorskip('starlette', reason='the extra serve is not installed')
pytest.importorskip('uvicorn', reason='the extra serve is not installed')
from selenium.webdriver.common.keys import Keys

from promptrl_jax.feedback.web.server import FeedbackServer

pytestmark = pytest.mark.slow
_SERIOUS = ('serious', 'critical')
_RUN = """
  const done = arguments[0];
  axe.run().then((found) => done(found.violations.map((each) => ({
    id: each.id,
    impact: each.impact,
    where: each.nodes.map((node) => `${node.html} ${node.failureSummary}`),
  }))));
"""


@pytest.fixture(scope='module')
def axe(tmp_path_factory) -> str:
  """The script of axe-core: of the folder `$AXE_CORE`, or new from npm."""
  folder = pathlib.Path(os.environ.get('AXE_CORE', ''))
  if not (folder / 'axe.min.js').is_file():
    if not shutil.which('npm'):
      pytest.skip('npm is not installed, and AXE_CORE names no folder')
    home = tmp_path_factory.mktemp('npm')
    result = subprocess.run(
      ['npm', 'install', '--no-save', '--ignore-scripts', 'axe-core@4'],
      cwd=home,
      capture_output=True,
      text=True,
      timeout=120,
    )
    if result.returncode:
      pytest.skip(f'npm could not fetch axe-core: {result.stderr[-200:]}')
    folder = home / 'node_modules' / 'axe-core'
  return (folder / 'axe.min.js').read_text(encoding='utf-8')


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
      person.run(axe)
      found = browser.execute_async_script(_RUN)
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
