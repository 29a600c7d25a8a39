"""Which prompt stands where, what made it, and the files that show it."""

import dataclasses
import json
import time

import pytest

from promptrl_jax.evaluation import html_page, lineage_report
from promptrl_jax.evaluation.lineage_report import Place
from promptrl_jax.evolution.population import Population
from tests.evaluation.family import (
  HISTORY,
  HOSTILE,
  POPULATION,
  USAGE,
  individual,
  large,
)
from tests.evaluation.html_report_test import Elements


@pytest.fixture(scope='module')
def members():
  return lineage_report.trace(POPULATION, HISTORY, USAGE)


def by_id(members, field):
  return {m.individual.id: getattr(m, field) for m in members}


def test_the_branch_of_the_best_is_the_uppermost(members):
  assert by_id(members, 'place') == {
    'a': Place(0, 0.5),
    'c': Place(1, 0.5),
    'd': Place(2, 0.0),  # There is no second generation.
    'e': Place(2, 1.0),
    'b': Place(0, 2.0),
    'g': Place(1, 2.0),
    'f': Place(-1, 0.0),
  }


def test_few_are_those_that_live_or_were_shown_and_their_ancestors(members):
  few = {name for name, place in by_id(members, 'few').items() if place}
  assert few == set('abcdef')
  assert by_id(members, 'few')['b'] == Place(0, 2.0)
  assert [m.individual.id for m in members if m.is_alive] == ['d', 'e']


def test_sections_show_what_made_a_prompt(members):
  assert by_id(members, 'operator') == {
    'a': 'drawn at the beginning',
    'b': 'drawn at the beginning',
    'f': 'drawn at the beginning',
    'c': 'crossover',
    'g': 'mutation of tone',
    'd': 'crossover and mutation of tone',
    'e': 'mutation of role',
  }
  twin = individual('x', 'a', 1, role='You are a poet.', tone='Be brief.')
  assert lineage_report.operator(twin, HISTORY[:1]) == 'copy'
  sections = {'role': 'You are a cook.', 'tone': 'Be kind.'}
  followed = individual('x', 'a', 1, **sections)
  for guided, made in (
    ('tone', 'guided mutation of tone and mutation of role'),
    ('format', 'mutation of role, tone'),
  ):
    child = dataclasses.replace(followed, guided=guided)
    assert lineage_report.operator(child, HISTORY[:1]) == made


def test_the_page_holds_the_data_and_opens_no_element(members, tmp_path):
  path = lineage_report.write(tmp_path / 'new' / 'l.html', members, HOSTILE)
  page = Elements(path.read_text(encoding='utf-8'))
  assert page.text('title') == HOSTILE
  assert len([tag for tag, _ in page.tags if tag == 'script']) == 2
  rows = json.loads(page.text('script', id='report-data'))['members']
  (d,) = (row for row in rows if row['id'] == 'd')
  assert d == {
    **{'id': 'd', 'parents': ['c', 'b'], 'generation': 3, 'fitness': 0.9},
    **{'operator': 'crossover and mutation of tone', 'alive': True},
    **{'shown': 3, 'heard': 2, 'liked': 0.75, 'all': [2, 0.0], 'few': [2, 0.0]},
    'text': f'You are a poet.\n\nBe polite. {HOSTILE}',
  }
  for tag, attributes in page.tags:
    assert 'src' not in attributes, tag
    assert attributes.get('href', '#').startswith(('#', 'data:'))


def test_every_asset_is_part_of_the_page():
  folder = html_page.ASSETS / 'lineage'
  parts = {f'{name}.js' for name in lineage_report._SCRIPTS}
  parts |= {f'{name}.css' for name in lineage_report._STYLES}
  names = {f'lineage/{path.name}' for path in folder.iterdir()}
  assert names - {'lineage/lineage.html'} <= parts


def test_thousands_of_prompts_are_a_matter_of_seconds(tmp_path):
  population, history, usage = large(3000)
  begin = time.process_time()
  members = lineage_report.trace(population, history, usage)
  lineage_report.write(tmp_path / 'l.html', members, 'Many')
  assert time.process_time() - begin < 10
  assert len(members) == 3000
  places = {(m.place.column, m.place.row) for m in members}
  assert len(places) == 3000  # None lies on another one.


def test_the_figure_is_drawn_with_and_without_relatives(members, tmp_path):
  drawn = lineage_report.draw(tmp_path / 'l.png', members, 'Title')
  assert drawn.stat().st_size > 5000
  strangers = Population(tuple(individual(name) for name in 'xyz'))
  alone = lineage_report.trace(strangers, (), {})
  assert [m.place.column for m in alone] == [-1] * 3
  assert lineage_report.draw(tmp_path / 'm.png', alone, 'T').exists()


def test_bad_input_writes_nothing(tmp_path):
  for write in (lineage_report.write, lineage_report.draw):
    with pytest.raises(ValueError, match='no prompts: expected at least one'):
      write(tmp_path / 'l', [], 'Title')
  circle = [individual('a', 'b'), individual('b', 'a')]
  with pytest.raises(ValueError, match='is an ancestor of its own'):
    lineage_report.trace(Population(tuple(circle)), (), {})
  assert list(tmp_path.iterdir()) == []
