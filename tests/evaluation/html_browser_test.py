"""The page in headless Chromium, by keyboard, at two widths.

Needs selenium, Chromium and its driver: docs/testing.md. The last test, which
is slow, opens the trace of 100 MB that the page is built for.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import time
import urllib.parse
from collections.abc import Callable

import numpy as np
import pytest

from promptrl_jax.evaluation import failures, html_report, references
from tests.browser import browser as browser
from tests.evaluation.html_run import (
  COVERAGE,
  EQUAL_CALLS,
  HOSTILE,
  HOSTILE_TASK,
  ISLANDS,
  LEARNING,
  OPERATORS,
  PASS_AT_K,
  PROGRAMS,
  REPLIES,
  SEARCHES,
  SELECTION,
  TESTS,
  make_run,
  play,
  play_evolved,
)

webdriver = pytest.importorskip(
  'selenium.webdriver', reason='selenium is not installed: docs/testing.md'
)
from selenium.webdriver.common.action_chains import ActionChains  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402

_PATIENCE_S = 20.0


@pytest.fixture(scope='module')
def page(tmp_path_factory) -> pathlib.Path:
  folder = tmp_path_factory.mktemp('page')
  run = make_run(folder)
  return html_report.write(
    folder / 'report.html',
    header=run.header,
    cells_by_protocol=run.cells,
    summaries=run.summaries,
    trace=run.trace,
    references=references.PROMIS_MBPP,
    operators=OPERATORS,
    islands=ISLANDS,
    replies=REPLIES,
    programs=PROGRAMS,
    tests=TESTS,
    selection=SELECTION,
    coverage=COVERAGE,
    equal_calls=EQUAL_CALLS,
    pass_at_k=PASS_AT_K,
    learning=LEARNING,
  )


@pytest.fixture(scope='module')
def evolved_page(tmp_path_factory) -> pathlib.Path:
  """A page whose statements evolve, and with a search before."""
  folder = tmp_path_factory.mktemp('evolved')
  run = make_run(folder)
  with open(run.trace, 'a', encoding='utf-8') as file:
    file.writelines(json.dumps(row) + '\n' for row in play_evolved())
  return html_report.write(
    folder / 'report.html',
    header=run.header,
    cells_by_protocol=run.cells,
    summaries=run.summaries,
    trace=run.trace,
    searches=SEARCHES,
  )


def wait(condition: Callable[[], object]) -> None:
  """Returns once a condition holds."""
  end = time.monotonic() + _PATIENCE_S
  while not condition():
    assert time.monotonic() < end, 'it never came to hold'
    time.sleep(0.02)


class Page:
  """What a person does and sees."""

  def __init__(self, browser, path, fragment='', width=1280, height=900):
    self.browser = browser
    browser.get('about:blank')  # Another fragment alone loads nothing.
    browser.execute_cdp_cmd(
      'Emulation.setDeviceMetricsOverride',
      {
        'width': width,
        'height': height,
        'deviceScaleFactor': 1,
        'mobile': False,
      },
    )
    browser.get(f'file://{path}{fragment}')
    wait(lambda: self.run('return document.documentElement.dataset.ready'))

  def run(self, script, *arguments):
    return self.browser.execute_script(script, *arguments)

  def text(self, selector):
    script = 'return document.querySelector(arguments[0])?.innerText ?? ""'
    return self.run(script, selector)

  def press(self, *keys):
    ActionChains(self.browser).send_keys(*keys).perform()

  def focus(self, selector):
    self.run('document.querySelector(arguments[0]).focus()', selector)

  def focused(self):
    return self.run(
      'const e = document.activeElement; return e.id || e.className'
    )

  def waits_for(self, selector, part):
    wait(lambda: part in self.text(selector))

  def is_silent(self):
    return self.browser.get_log('browser') == []


def link(strategy, budget, seed, task, step=None):
  parts = ['visible1', strategy, budget, seed, task]
  parts += [] if step is None else [step]
  quoted = (urllib.parse.quote(str(part), safe='') for part in parts)
  return '#trace/' + '/'.join(quoted)


def test_it_opens_from_a_file_without_an_error(browser, page):
  shown = Page(browser, page)
  shown.waits_for('.episode', 'ppo at B=4, seed 7: solved')
  sections = shown.run(
    'return [...document.querySelectorAll("main > section:not([hidden]) h2")]'
    '.map((title) => title.innerText)'
  )
  assert sections == [
    'Scores',
    'Solved at each budget',
    'Cost and quality',
    'Differences',
    'By kind of problem',
    'Share of tests passed',
    'Solved by one strategy alone',
    'What choosing is worth',
    'What became of the programs',
    'Candidates by operator',
    'Learning curves',
    'Traces',
    'Where the numbers come from',
    'References (published, not ours)',
  ]
  assert shown.is_silent()


def test_the_table_marks_the_best_and_is_sorted_by_a_click(browser, page):
  shown = Page(browser, page)
  names = (
    'return [...document.querySelectorAll(".headline tbody th")]'
    '.map((cell) => cell.innerText)'
  )
  assert shown.run(names) == ['direct', 'ppo', 'bandit']
  best = (
    'return [...document.querySelectorAll(".best b")].map(b => b.innerText)'
  )
  assert shown.run(best) == ['25.0', '50.0']  # 3 of 12, 6 of 12.
  shown.focus('[data-column="4"]')
  shown.press(Keys.ENTER)
  assert shown.run(names) == ['ppo', 'bandit', 'direct']
  sorts = 'return document.querySelector("[data-column=\\"4\\"]").parentElement'
  assert shown.run(f'{sorts}.ariaSort') == 'descending'
  shown.press(Keys.ENTER)  # It still has the focus.
  assert shown.run(names) == ['direct', 'bandit', 'ppo']


def test_a_curve_is_read_by_keyboard_and_switched_off(browser, page):
  shown = Page(browser, page)
  shown.focus('#curves .chart svg')
  shown.press(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
  shown.waits_for('#curves .tip', 'direct, B=4: 16.7 %')
  shown.press(Keys.ARROW_UP)
  shown.waits_for('#curves .tip', 'bandit, B=4: 33.3 %')
  shown.press(Keys.ARROW_UP)
  shown.waits_for('#curves .tip', 'ppo, B=4: 50.0 %')
  shown.press(Keys.ESCAPE)
  assert shown.run('return document.querySelector("#curves .tip").hidden')
  lines = 'return document.querySelectorAll("#curves polyline").length'
  assert shown.run(lines) == 3
  shown.focus('#curves [data-name="bandit"]')
  shown.press(Keys.SPACE)
  assert shown.run(lines) == 2
  assert shown.run('return document.activeElement.dataset.name') == 'bandit'


def test_a_learning_curve_has_a_line_per_seed_and_their_mean(browser, page):
  shown = Page(browser, page)
  count = 'return document.querySelectorAll("#learning arguments").length'
  assert shown.run(count.replace('arguments', 'polyline')) == 3
  assert shown.run(count.replace('arguments', 'polygon')) == 1  # their spread
  ticks = shown.run(
    'return [...document.querySelectorAll("#learning .axes text")]'
    '.map((tick) => tick.textContent)'
  )
  assert {'0', '-0.5'} <= set(ticks)  # Returns are no shares.
  shown.focus('#learning .chart svg')
  shown.press(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
  shown.waits_for('#learning .tip', 'ppo, seed 7, update 2 (30 calls): 0.250')
  shown.press(Keys.ARROW_UP)
  shown.waits_for(
    '#learning .tip', 'ppo, mean of seeds, update 2 (32 calls): 0.500 ± 0.354'
  )
  shown.run('document.querySelectorAll("#learning button")[1].click()')
  assert 'model calls of training' in shown.text('#learning .chart')
  assert shown.is_silent()


def test_attempts_that_failed_stand_below_the_scores(browser, tmp_path):
  run = make_run(tmp_path)
  (*others, mine) = run.cells['visible1']
  broken = dataclasses.replace(mine.details[0][0], error='KeyError: <b>3</b>')
  details = ((broken, *mine.details[0][1:]), *mine.details[1:])
  cells = [*others, dataclasses.replace(mine, details=details)]
  path = html_report.write(
    tmp_path / 'report.html',
    header=run.header,
    cells_by_protocol={'visible1': cells},
    summaries=run.summaries,
    trace=run.trace,
    failed=failures.count(cells),
  )
  shown = Page(browser, path)
  table = '#scores [aria-label="Attempts that failed"] tbody'
  assert shown.text(table).split() == [
    *('bandit', '4', '12', '1', '1', 'KeyError:', '<b>3</b>')
  ]
  assert shown.is_silent()


def test_what_became_of_programs_has_a_section(browser, page):
  shown = Page(browser, page)
  table = '#programs [aria-label="{}"] {}'.format
  heads = shown.text(table('Programs by verdict', 'thead')).split('\n')
  assert ' '.join(heads).split() == [
    *('strategy', 'programs', 'wrong', 'value', 'no', 'failure', 'KeyError'),
    *('NameError', 'TypeError', 'ValueError', 'IndexError', 'others'),
  ]
  assert shown.text(table('Programs by verdict', 'tbody')).split() == [
    *('bandit', '40', '50.0', '20.0', '5.0', '5.0', '5.0', '5.0'),
    *('2.5', '7.5'),
  ]
  assert shown.text(table('Tests that the model wrote', 'tbody')).split() == [
    *('bandit', '12', '2', '40', '22.5')
  ]


def test_what_choosing_is_worth_has_a_section(browser, page):
  shown = Page(browser, page)
  table = '#choices [aria-label="{}"] tbody'.format
  assert shown.text(table('Selection score beside test score')).split() == [
    *('bandit', '1,', '4', '75.0', '62.5', '50.0', '−25.0'),
    *('direct', '4', '25.0', '50.0', '+25.0'),
  ]
  assert shown.text(table('Samples at equal calls')).split() == [
    *('4', '2.25', '1.75', '70.0', '60.0', '+10.0', '[−5.0,', '+25.0]')
  ]
  assert shown.text(table('A perfect choice among samples')).split() == [
    *('4', '50.0', '75.0', '70.0', '80', '%', '+7.5', '[−2.5,', '+17.5]')
  ]
  assert shown.text(table('pass@k of independent samples')).split() == [
    *('2', '40.0', '[30.0,', '55.0]', '9')
  ]


def test_operators_are_those_of_the_budget_and_of_searches(browser, page):
  shown = Page(browser, page)
  rows = (
    'return [...document.querySelectorAll("#operators tbody tr")]'
    '.map((row) => row.cells[1].innerText.split("\\n")[0])'
  )
  # Operators, an island, and of replies those that were refused or cut.
  assert shown.run(rows) == ['cross', 'reflect', '1', 'program']
  assert '0.38' in shown.text('[aria-label="Diversity by island"] tbody')
  replies = '[aria-label="Replies that were refused or cut"] tbody'
  assert shown.text(replies).split() == [
    'bandit',
    'program',
    '31',
    '2',
    '2',
    'cut',
  ]
  assert shown.text('#operators tbody .number:nth-child(5)').split() == [
    *('7', '4', 'malformed', '3', 'cut')
  ]
  shown.run('document.querySelector("#operators button").click()')  # B=1
  assert shown.run(rows) == ['reflect']


def test_seconds_and_dollars_stand_beside_scores(browser, page):
  shown = Page(browser, page)
  shown.run('document.querySelector("#cost details").open = true')
  row = (
    'return [...document.querySelectorAll("#cost tbody tr")].at(arguments[0])'
    '.innerText.split("\\t")'
  )
  ppo = shown.run(row, 3)  # 12 episodes in 4.8 s for 0.012 dollars.
  assert ppo[:4] == ['ppo', '4', '2', '50.0']
  assert ppo[-3:-1] == ['0.400', '0.001000']
  assert shown.run(row, 0)[-3:-1] == ['unknown', 'unknown']
  choices = (
    'return [...document.querySelectorAll("#cost .segments button")]'
    '.map((each) => each.innerText)'
  )
  assert shown.run(choices) == ['calls', 'tokens', 'seconds', 'dollars']
  shown.run('document.querySelectorAll("#cost .segments button")[3].click()')
  assert '(0.001000 dollars, 50.0 %)' in shown.text('#cost .note')
  assert shown.is_silent()


def test_soft_scores_are_counted_by_their_share_of_tests(browser, page):
  shown = Page(browser, page)
  rows = (
    'return [...document.querySelectorAll("#soft tbody tr")]'
    '.map((row) => row.innerText.split("\\t"))'
  )
  assert shown.run(rows)[1] == [
    'ppo',
    '0.0',
    '0.0',
    '0.0',
    '50.0',
    '0.0',
    '50.0',
  ]


def test_a_trace_is_walked_by_keyboard(browser, page):
  shown = Page(browser, page)
  shown.waits_for('.episode h3', 'mini/0')
  shown.focus('#search')
  shown.press(Keys.ARROW_DOWN)
  assert shown.focused() == 'problems'
  shown.press(Keys.ARROW_DOWN)
  shown.waits_for('.episode h3', 'mini/1')
  shown.press(Keys.ENTER)
  assert shown.focused() == 'step-0'
  assert '1 of 4' in shown.text('#step-panel')
  assert "NameError: name 'x' is not defined" in shown.text('#step-panel')
  shown.press(Keys.ARROW_RIGHT)
  shown.waits_for('#step-panel', '3 of 4')
  assert shown.focused() == 'step-1'
  # The statement grew; the rewriter was asked for the first time.
  inserted = shown.run(
    'return [...document.querySelectorAll("#step-panel ins")]'
    '.map((each) => each.textContent)'
  )
  assert inserted == [' Mind the zero.']
  assert not shown.run('return document.querySelector("#step-panel del")')
  assert 'to the rewriter' in shown.text('#step-panel')
  assert 'assert f(1) == 2' in shown.text('#step-panel .tests .good')
  shown.press(Keys.ARROW_RIGHT)
  shown.waits_for('#step-panel', 'Solved: the submitted program passes 3 of 4')
  assert shown.run('return location.hash') == link('ppo', 4, 7, 'mini/1', 3)
  shown.press(Keys.ARROW_RIGHT)  # There is no further step.
  assert shown.focused() == 'step-2'
  shown.press(Keys.TAB, Keys.ESCAPE)
  assert shown.focused() == 'step-2'
  shown.press(Keys.ESCAPE)
  assert shown.focused() == 'problems'
  shown.press(Keys.ESCAPE)
  assert shown.focused() == 'search'
  assert shown.is_silent()


def changes(shown, inside):
  """The words that were deleted and inserted there, in their order."""
  return shown.run(
    'return [...document.querySelectorAll(arguments[0])].map((each) => '
    '(each.tagName === "DEL" ? "-" : "+") + each.textContent)',
    f'{inside} del, {inside} ins',
  )


def test_words_are_compared_with_those_of_the_parent(browser, evolved_page):
  shown = Page(browser, evolved_page, link('epic', 1, 0, 'mini/9', 5))
  prompt = '#step-panel [aria-label="Message of the user"]'
  # Not with the statement that was asked for before, a sibling.
  shown.waits_for('#step-panel .toggle', 'prompt of its parent (step 1)')
  assert changes(shown, prompt) == ['+ Twice.']
  # Of two parents, the first one.
  shown.focus('#step-4')
  shown.press(Keys.ARROW_RIGHT)
  shown.waits_for('#step-panel', 'The other parent')
  assert changes(shown, prompt) == []  # It asks for words.
  statement = '#step-panel [aria-label="Statement"]'
  assert changes(shown, statement) == ['-one', '+two']
  shown.press(Keys.ARROW_RIGHT)
  shown.waits_for('#step-panel .toggle', 'parent (step 4 and step 5)')
  assert changes(shown, prompt) == ['-one', '+two']
  # One that the row of its generation alone says.
  shown.press(Keys.ARROW_RIGHT)
  shown.waits_for('#step-panel .toggle', 'prompt of its parent (step 5)')
  assert changes(shown, prompt) == ['-Add', '+Sum']
  assert shown.is_silent()


def test_searched_texts_are_compared_with_their_parents(browser, evolved_page):
  shown = Page(browser, evolved_page)
  heads = shown.run(
    'return [...document.querySelectorAll("#searched summary")]'
    '.map((each) => each.innerText)'
  )
  assert heads == [
    *('candidate 0: start', 'not taken: reflect of 0'),
    *('candidate 1: reflect of 0', 'candidate 2: merge of 1 and 0'),
  ]
  place = '#searched li:nth-child(arguments)'
  for number, words in (
    (1, []),
    (2, ['-correct', '+fast']),
    (3, ['+, short']),
    (4, ['-code', '+Python']),
  ):
    assert changes(shown, place.replace('arguments', str(number))) == words
  assert shown.is_silent()


def test_problems_are_filtered_and_searched(browser, page):
  shown = Page(browser, page)
  shown.waits_for('[role=status]', '6 problems of 6')
  shown.run(
    'const box = document.getElementById("choose-filter");'
    'box.value = "unsolved"; box.dispatchEvent(new Event("change"))'
  )
  shown.waits_for('[role=status]', '3 problems of 6')
  shown.focus('#search')
  shown.press('ONERROR=alert')  # In one program alone, whatever the case.
  shown.waits_for('[role=status]', '1 problem of 6')
  assert HOSTILE_TASK.removeprefix('mini/') in shown.text('.problems')


def test_another_strategy_shows_the_same_problem(browser, page):
  shown = Page(browser, page, link('ppo', 4, 8, 'mini/2'))
  shown.waits_for('.episode .note', 'ppo at B=4, seed 8')
  shown.run(
    'const box = document.getElementById("choose-strategy");'
    'box.value = "direct"; box.dispatchEvent(new Event("change"))'
  )
  shown.waits_for('.episode .note', 'direct at B=4, seed 7')
  assert shown.text('.episode h3') == 'mini/2'


def test_a_link_opens_a_step_and_what_a_model_wrote_is_text(browser, page):
  shown = Page(browser, page, link('ppo', 4, 8, HOSTILE_TASK, 1))
  shown.waits_for('.episode h3', HOSTILE_TASK)
  code = shown.run('return document.querySelector("pre.code").textContent')
  assert code == HOSTILE
  assert not shown.run('return document.querySelector("main img, main script")')
  assert shown.run('return document.getElementById("trace-title")')
  top = 'return document.getElementById("trace").getBoundingClientRect().top'
  wait(lambda: 0 <= shown.run(top) < 120)
  # The next link is followed as well.
  shown.run('location.hash = arguments[0]', link('direct', 1, 7, 'mini/4', 2))
  shown.waits_for('#step-panel', 'Not solved: the submitted program')
  assert shown.is_silent()


def test_a_link_to_nowhere_says_so(browser, page):
  shown = Page(browser, page, link('ppo', 4, 8, 'mini/none'))
  shown.waits_for('.viewer [role=alert]', 'this trace does not have')
  shown.waits_for('.episode h3', 'mini/0')


@pytest.mark.parametrize('width', [360, 390, 1280])
def test_the_page_never_scrolls_sideways(browser, page, width):
  shown = Page(browser, page, link('ppo', 4, 7, 'mini/1', 2), width)
  shown.waits_for('.episode h3', 'mini/1')
  beyond = (
    'const page = document.documentElement;'
    'return page.scrollWidth - page.clientWidth'
  )
  assert shown.run(beyond) == 0
  for kind in ('first failure of direct', 'family'):
    shown.run(
      '[...document.querySelectorAll("#breakdown button")]'
      '.find((each) => each.textContent === arguments[0]).click()',
      kind,
    )
    assert shown.run(beyond) == 0


def test_the_policy_stops_scripts_and_connections(browser, page):
  shown = Page(browser, page)
  shown.run(
    'const script = document.createElement("script");'
    'script.textContent = "window.x = 1"; document.body.append(script);'
    'fetch("http://127.0.0.1:9/").catch(() => { window.refused = true; })'
  )
  assert shown.run('return window.x') is None
  wait(lambda: shown.run('return window.refused'))
  log = ' '.join(entry['message'] for entry in browser.get_log('browser'))
  assert 'script-src' in log and 'connect-src' in log


@pytest.mark.slow
def test_a_trace_of_100_mb_opens_in_three_seconds(browser, tmp_path):
  run = make_run(tmp_path)
  rng = np.random.default_rng(0)
  words = [f'w{word:x}' for word in rng.integers(0, 16**5, 20_000)]
  size, task = 0, 0
  with open(run.trace, 'a', encoding='utf-8') as file:
    while size < 100e6:
      text = ' '.join(rng.choice(words, 250))
      code = f'def f(a):\n  # {text[:700]}\n  return a\n'
      seed, place = divmod(task, 600)
      for row in play(f'big/{place}', seed, 8, place, (text, text, code)):
        label = {'strategy': 'ppo', 'protocol': 'visible1'}
        size += file.write(json.dumps({**label, **row}) + '\n')
      task += 1
  path = html_report.write(
    tmp_path / 'report.html',
    header=run.header,
    cells_by_protocol=run.cells,
    summaries=run.summaries,
    trace=run.trace,
  )
  started = time.perf_counter()
  shown = Page(browser, path, link('ppo', 8, 3, 'big/77', 3))
  shown.waits_for('.episode h3', 'big/77')
  shown.waits_for('#step-panel', 'def f(a)')
  seconds = time.perf_counter() - started
  page_mb = path.stat().st_size / 1e6
  print(f'{size / 1e6:.0f} MB, a page of {page_mb:.0f} MB in {seconds:.2f} s')
  assert seconds < 3
  started = time.perf_counter()
  shown.run('location.hash = arguments[0]', link('ppo', 8, 9, 'big/500', 2))
  shown.waits_for('.episode h3', 'big/500')
  assert time.perf_counter() - started < 1
