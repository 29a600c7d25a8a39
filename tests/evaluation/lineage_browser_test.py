"""The page of a lineage in headless Chromium, by keyboard and by mouse."""

from __future__ import annotations

import pytest

from promptrl_jax.evaluation import lineage_report
from tests.axe import axe as axe
from tests.axe import violations
from tests.browser import browser as browser
from tests.evaluation.family import HISTORY, POPULATION, USAGE, large
from tests.feedback.web.person import Person, wait

pytest.importorskip('selenium', reason='selenium is not installed')
from selenium.webdriver.common.keys import Keys


@pytest.fixture(scope='module')
def page(tmp_path_factory):
  members = lineage_report.trace(POPULATION, HISTORY, USAGE)
  folder = tmp_path_factory.mktemp('page')
  return lineage_report.write(folder / 'lineage.html', members, 'Prompts')


def chosen(person):
  title = 'return document.querySelector("#prompt h2").firstChild.textContent'
  return person.run(title).strip()


def focus_forest(person):
  # A window that is not in front has no events of focus.
  person.browser.execute_cdp_cmd(
    'Emulation.setFocusEmulationEnabled', {'enabled': True}
  )
  person.run('document.querySelector(".prompt[tabindex=\'0\']").focus()')


def test_arrows_lead_through_the_family(browser, page):
  person = Person(browser, f'file://{page}')
  assert chosen(person) == 'Prompt d'  # the best that lives
  assert 'in the population' in person.text('#prompt h2')
  focus_forest(person)
  person.sees('.tip', 'crossover and mutation of tone')
  for key, name in (
    (Keys.ARROW_LEFT, 'c'),
    (Keys.ARROW_LEFT, 'a'),
    (Keys.ARROW_RIGHT, 'c'),
    (Keys.ARROW_RIGHT, 'd'),
    (Keys.ARROW_DOWN, 'a'),
    (Keys.HOME, 'd'),
  ):
    person.press(key)
    assert chosen(person) == f'Prompt {name}', key
  label = 'return document.activeElement.getAttribute("aria-label")'
  assert person.run(label) == (
    'Prompt d, generation 3, crossover and mutation of tone, fitness 0.900, '
    'shown 3 times, in the population'
  )
  assert person.run('return location.hash') == '#d'
  person.reload()
  assert chosen(person) == 'Prompt d' and person.problems() == []


def test_a_text_is_compared_with_that_of_a_parent(browser, page):
  person = Person(browser, f'file://{page}#c')
  assert chosen(person) == 'Prompt c'
  assert person.texts('#prompt del') + person.texts('#prompt ins') == [
    'brief',
    'struck',
    'polite',
    'Underlined',
  ]
  person.run('document.querySelectorAll("#prompt .segments button")[1].click()')
  assert person.texts('pre del') + person.texts('pre ins') == ['clerk', 'poet']
  person.run('document.querySelectorAll("#prompt .segments button")[2].click()')
  assert person.text('pre') == 'You are a poet.\n\nBe polite.'
  # Nothing that a prompt says is markup.
  person.open(f'file://{page}#d')
  person.reload()
  assert '<b>bold</b></script>' in person.text('pre')
  assert person.run('return window.hurt') is None


def test_the_others_are_a_press_away_and_kin_are_links(browser, page):
  person = Person(browser, f'file://{page}')
  names = (
    'return document.querySelectorAll("#forest .forest-box .prompt").length'
  )
  assert person.run(names) == 6
  person.run('document.querySelectorAll("#forest .segments button")[1].click()')
  assert person.run(names) == 7
  person.open(f'file://{page}#b')
  person.reload()
  children = '#prompt [aria-label=Children] button'
  assert [t.split()[0] for t in person.texts(children)] == ['d', 'c', 'g']
  # g is none of the few: the page turns to all.
  person.run('document.querySelectorAll(arguments[0])[2].click()', children)
  assert chosen(person) == 'Prompt g' and person.run(names) == 7
  assert person.focused() == 'prompt'


@pytest.mark.parametrize('width', [320, 1280])
def test_the_page_never_scrolls_sideways(browser, page, width):
  person = Person(browser, f'file://{page}', width, 740)
  assert person.width_beyond() == 0
  wide = 'return document.querySelector(".forest-box .lineage").clientWidth'
  before = person.run(wide)
  person.look(800, 740)
  wait(lambda: person.run(wide) > before)  # It is drawn anew.


@pytest.mark.slow
def test_thousands_of_prompts_are_drawn(browser, tmp_path):
  members = lineage_report.trace(*large(3000))
  path = lineage_report.write(tmp_path / 'l.html', members, 'Many')
  person = Person(browser, f'file://{path}')
  focus_forest(person)
  person.press(Keys.ARROW_LEFT)
  assert person.text('.made').endswith('.') and person.width_beyond() == 0


@pytest.mark.slow
@pytest.mark.parametrize('scheme', ['light', 'dark'])
@pytest.mark.parametrize('width', [360, 1280])
def test_axe_finds_nothing(browser, axe, page, width, scheme):
  person = Person(browser, f'file://{page}', width, 860, scheme)
  assert violations(browser, axe) == []
  focus_forest(person)
  assert violations(browser, axe) == []
