"""The page without a browser: its parts, its policy, and what ends no tag."""

import base64
import hashlib
import html.parser
import json
import re

import pytest

from promptrl_jax.evaluation import html_page, html_report, references
from tests.evaluation.html_run import (
  COVERAGE,
  EQUAL_CALLS,
  HOSTILE_TASK,
  ISLANDS,
  LEARNING,
  OPERATORS,
  PASS_AT_K,
  PROGRAMS,
  REPLIES,
  SELECTION,
  TESTS,
  make_run,
)


class Elements(html.parser.HTMLParser):
  """Tags with their attributes, and the text of scripts and styles."""

  def __init__(self, page):
    super().__init__()
    self.tags, self.texts, self._open = [], [], None
    self.feed(page)
    self.close()

  def handle_starttag(self, tag, attrs):
    self.tags.append((tag, dict(attrs)))
    self._open = tag
    if tag in ('script', 'style', 'title'):
      self.texts.append([tag, dict(attrs), ''])

  def handle_endtag(self, tag):
    self._open = None

  def handle_data(self, data):
    if self._open in ('script', 'style', 'title'):
      self.texts[-1][2] += data

  def text(self, tag, **attributes):
    (found,) = (
      text
      for name, attrs, text in self.texts
      if name == tag and attributes.items() <= attrs.items()
    )
    return found


@pytest.fixture(scope='module')
def run(tmp_path_factory):
  return make_run(tmp_path_factory.mktemp('run'))


def write(run, path, **changes):
  arguments = {
    'header': run.header,
    'cells_by_protocol': run.cells,
    'summaries': run.summaries,
    'trace': run.trace,
  }
  written = html_report.write(path, **(arguments | changes))
  assert written == path
  return Elements(path.read_text(encoding='utf-8'))


@pytest.fixture(scope='module')
def page(run, tmp_path_factory):
  return write(
    run,
    tmp_path_factory.mktemp('page') / 'report.html',
    references=references.PROMIS_MBPP,
    registers={'mini/0': 'plain', 'mini/1': 'noisy'},
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


def data_of(page):
  return json.loads(page.text('script', id='report-data'))


def test_the_page_needs_nothing_else(page):
  for tag, attributes in page.tags:
    assert 'src' not in attributes, tag
    if 'href' in attributes:
      assert attributes['href'].startswith(('#', 'data:')), attributes
    assert not [name for name in attributes if name.startswith('on')]
    assert 'style' not in attributes
  names = [tag for tag, _ in page.tags]
  assert names.count('style') == names.count('h1') == names.count('main') == 1
  assert not {'link', 'iframe', 'img', 'object'} & set(names) - {'link'}


def test_the_policy_forbids_the_network_and_other_scripts(page):
  (policy,) = (
    attributes['content']
    for tag, attributes in page.tags
    if attributes.get('http-equiv') == 'Content-Security-Policy'
  )
  rules = dict(rule.split(' ', 1) for rule in policy.split('; '))
  assert rules.pop('default-src') == "'none'"
  assert rules.keys() == {
    *('script-src', 'style-src', 'img-src', 'base-uri', 'form-action')
  }
  for kind, text in (
    ('script-src', page.text('script', type='module')),
    ('style-src', page.text('style')),
  ):
    digest = hashlib.sha256(text.encode()).digest()
    assert rules[kind] == f"'sha256-{base64.b64encode(digest).decode()}'"


def test_text_of_models_and_data_opens_no_element(page, run):
  scripts = [attrs for tag, attrs, _ in page.texts if tag == 'script']
  chunks = [each for each in scripts if each['type'] == 'application/gzip']
  assert [each['id'] for each in chunks] == [f'chunk-{i}' for i in range(8)]
  assert len(scripts) == len(chunks) + 2
  assert not {'b', 'i', 'img'} & {tag for tag, _ in page.tags}
  assert page.text('title') == 'Results on mini'
  data = data_of(page)
  assert data['trace']['tasks'][3]['id'] == HOSTILE_TASK
  assert ['data hash', 'mini <i>abc</i>'] in data['header']


def test_the_script_parses_no_html():
  for path in html_page.ASSETS.rglob('*.js'):
    text = path.read_text(encoding='utf-8')
    words = r'innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b'
    assert not re.search(rf'{words}|Function\(|fetch\(|</script|<!--', text)


def test_every_asset_is_part_of_the_page():
  parts = {f'{name}.js' for name in html_report._SCRIPTS}
  parts |= {f'{name}.css' for name in html_report._STYLES}
  parts |= {'report.html', 'head.html'}
  files = {path.name for path in html_page.ASSETS.iterdir() if path.is_file()}
  assert files == parts


def test_the_data_holds_the_numbers_of_the_summary(page, run):
  data = data_of(page)
  shown = data['protocols']['visible1']
  summary = run.summaries['visible1']
  assert {key: shown[key] for key in summary} == summary
  assert list(shown['groups']) == [
    *('first failure of direct', 'register', 'family')
  ]
  assert shown['groups']['first failure of direct']['groups'] == [
    {'name': 'no failure', 'problems': 5},
    {'name': 'NameError', 'problems': 1},
  ]
  assert shown['alone'][0]['problems'] == ['mini/1']
  facts = dict(data['header'])
  assert facts['model hashes'] == 'coder tiny@12, rewriter tiny@34'
  assert facts['seeds'] == '7, 8'
  assert (data['operators'], data['learning']) == (OPERATORS, LEARNING)
  assert (data['islands'], data['replies']) == (ISLANDS, REPLIES)
  assert data['equal_calls'] == EQUAL_CALLS
  assert (data['programs'], data['tests']) == (PROGRAMS, TESTS)
  assert (data['selection'], data['coverage']) == (SELECTION, COVERAGE)
  assert data['pass_at_k'] == PASS_AT_K
  rows = data['references']['rows']
  assert len(rows) == len(references.PROMIS_MBPP)
  assert {row['strategy'] for row in rows}.isdisjoint(
    cell['strategy'] for cell in shown['cells']
  )


def test_without_problems_and_trace_there_are_tables_alone(run, tmp_path):
  page = write(run, tmp_path / 'report.html', cells_by_protocol={}, trace=None)
  data = data_of(page)
  assert data['trace'] is None
  assert data['operators'] == data['learning'] == []
  assert data['islands'] == data['replies'] == []
  assert data['protocols']['visible1']['groups'] == {}
  assert data['protocols']['visible1']['alone'] == []


def test_the_oracle_is_labelled(run, tmp_path):
  summary = run.summaries['visible1'] | {'protocol': 'oracle'}
  page = write(
    run,
    tmp_path / 'report.html',
    cells_by_protocol={},
    summaries={'oracle': summary},
    trace=None,
  )
  label = data_of(page)['protocols']['oracle']['label']
  assert label == 'oracle, at most b tries'


@pytest.mark.parametrize(
  ('changes', 'expected'),
  [
    ({'summaries': {}}, 'no summary to report'),
    (
      {'cells_by_protocol': {'oracle': []}},
      r"cells under \['oracle'\] have no",
    ),
    (
      {'summaries': {'visible1': {'protocol': 'visible1', 'x': float('nan')}}},
      'not JSON compliant',
    ),
  ],
)
def test_bad_input_writes_nothing(run, tmp_path, changes, expected):
  path = tmp_path / 'report.html'
  with pytest.raises(ValueError, match=expected):
    write(run, path, **changes)
  assert not list(tmp_path.iterdir())
