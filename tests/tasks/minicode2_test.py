"""The suite holds what its documentation says, and its programs are right."""

import collections
import dataclasses
import random
import re

import pytest

from promptrl_jax.execution import Program
from promptrl_jax.operators import lexical
from promptrl_jax.tasks.load import describe, load_tasks
from promptrl_jax.tasks.minicode2 import generate, wording
from promptrl_jax.tasks.minicode2.domains import DOMAINS
from promptrl_jax.tasks.minicode2.grammar import Template
from promptrl_jax.tasks.minicode2.suite import SUITE
from promptrl_jax.tasks.task_set import DataConfig

ROWS = SUITE.rows
BY_SPLIT = collections.defaultdict(list)
for _row in ROWS:
  BY_SPLIT[_row['split']].append(_row)


@pytest.mark.slow
def test_the_frozen_file_is_what_the_grammar_generates():
  assert SUITE.serialise() == SUITE.content


def test_its_size():
  assert {split: len(rows) for split, rows in BY_SPLIT.items()} == {
    'pretrain': 800,
    'policy': 1600,
    'held': 800,
    'validation': 300,
    'test': 600,
    'ood': 300,
    'wording': 600,
  }
  assert len({row['family'] for row in ROWS}) >= 200
  assert len({row['template'] for row in ROWS}) >= 400
  assert len({row['task_id'] for row in ROWS}) == len(ROWS)


def test_what_the_frozen_models_see_is_disjoint_from_all_else():
  known = {t.name for t in generate.templates()['pretrain']}
  names = lambda split: {row['template'] for row in BY_SPLIT[split]}
  assert names('pretrain') <= known
  for split in ('policy', 'held', 'ood'):
    assert not names(split) & known
  assert not names('policy') & names('held')
  assert not (names('policy') | names('held')) & names('test')
  for split in ('validation', 'test'):
    rows = BY_SPLIT[split]
    assert sum(row['template'] in known for row in rows) == len(rows) // 2


def test_parameters_of_known_templates_were_never_shown():
  known = {t.name: t for t in generate.templates()['pretrain']}
  for split in ('validation', 'test'):
    for row in BY_SPLIT[split]:
      if row['template'] in known:
        assert generate.is_reserved(known[row['template']], row['params'])
  for row in BY_SPLIT['pretrain']:
    assert not generate.is_reserved(known[row['template']], row['params'])


def test_unseen_families_are_in_ood_alone():
  families = lambda split: {row['family'] for row in BY_SPLIT[split]}
  single = {
    row['family']
    for row in BY_SPLIT['ood']
    if '+' not in row['template'].split('/')[1]
  }
  assert single and not single & families('pretrain')
  assert families('test') <= {
    t.family for t in generate.templates()['pretrain']
  }


@pytest.mark.slow
def test_every_program_passes_its_tests(pool):
  rows = ROWS[::7]
  results = pool.run([Program(r['code'], tuple(r['test_list'])) for r in rows])
  assert all(result.passed for result in results)


def test_wording_is_the_test_split_in_other_words():
  assert [row['code'].split('(')[1] for row in BY_SPLIT['wording']]
  for one, other in zip(BY_SPLIT['test'], BY_SPLIT['wording'], strict=True):
    assert one['template'] == other['template']
    assert one['params'] == other['params']
    assert one['register'] == other['register']
    assert one['test_list'] != other['test_list']
    assert one['text'] != other['text']


def test_hidden_tests_tell_the_readings_of_loose_words_apart():
  loose = [row for row in BY_SPLIT['test'] if row['register'] == 'loose']
  assert len(loose) > 60
  for row in loose[::8]:
    template = next(
      t
      for split in ('pretrain', 'test')
      for t in generate.templates()[split]
      if t.name == row['template']
    )
    passing = []
    for reading in range(3):
      other = dataclasses.replace(template, reading=reading)
      namespace = {}
      name = row['code'].split('(')[0].removeprefix('def ')
      exec(other.program(row['params'], name), namespace)
      try:
        exec('\n'.join(row['test_list'][1:]), namespace)
        passing.append(reading)
      except (AssertionError, IndexError, ValueError, ZeroDivisionError):
        pass
    assert len(passing) == 1


@pytest.mark.parametrize('domain', DOMAINS, ids=lambda d: d.name)
def test_the_lexical_operator_can_undo_every_rare_word(domain):
  config = lexical.LexicalConfig(probability=1.0)
  rng = random.Random(0)
  undone = 0
  for family in list(domain.families())[::5]:
    for piece in domain.filters:
      template = Template(domain, (piece,), *family)
      plain = template.statement(generate.draw_params(template, rng))
      for match in re.finditer('[a-z]+', plain):
        word = match.group()
        if word not in wording.RARE or plain[: match.start()].count('"') % 2:
          continue
        rare = wording.RARE[word]
        text = plain[: match.start()] + rare + plain[match.end() :]
        places = lexical.replaceable_words(text, config)
        options = {p.start: p.options for p in places}[match.start()]
        assert options == (word,), text
        undone += 1
  assert undone > 100


def test_no_synonym_is_a_rare_word():
  config = lexical.LexicalConfig(probability=1.0)
  rng = random.Random(0)
  for row in BY_SPLIT['test'][::5]:
    words = set(
      re.findall('[a-z]+', lexical.mutate(row['canonical'], rng, config))
    )
    assert not words & set(wording.RARE.values())


def test_a_story_keeps_numbers_and_quoted_letters():
  for row in BY_SPLIT['policy']:
    if row['register'] == 'story':
      for value in row['params'].values():
        assert str(value) in row['text']


def test_forms_are_not_in_the_statement_and_change_the_value():
  formed = [row for row in BY_SPLIT['test'] if row['register'] == 'form']
  assert len(formed) > 30
  for row in formed:
    assert row['text'] == row['canonical']


def test_an_unknown_split_or_wording_is_named():
  with pytest.raises(ValueError, match='dev.*held'):
    SUITE.load('dev')
  template = generate.templates()['pretrain'][0]
  with pytest.raises(ValueError, match='sung.*story'):
    wording.render(template, {}, 'sung', random.Random(0))


def test_the_train_split_is_that_of_policies():
  train = SUITE.load('train')
  assert len(train) == len(BY_SPLIT['policy'])
  assert {task.task_id for task in train} == {
    row['task_id'] for row in BY_SPLIT['policy']
  }


def test_more_problems_of_train_are_of_its_templates_and_new():
  config = DataConfig('minicode2', options={'more': 50})
  tasks = load_tasks(config, ['train', 'test'])['train']
  assert tasks[:1600] == load_tasks(DataConfig('minicode2'), ['train'])['train']
  assert len({task.task_id for task in tasks}) == 1650
  known = {t.name for t in generate.templates()['policy']}
  for task in tasks[1600:]:
    assert task.split == 'train'
    _, _, family, filters, _ = task.task_id.split('/')
    assert f'{family}/{filters}' in known
  # Fewer are the first of more.
  fewer = DataConfig('minicode2', options={'more': 20})
  assert load_tasks(fewer, ['train'])['train'] == tasks[:1620]
  assert describe(config) == f'minicode2 {SUITE.digest}+50'


def test_problems_may_be_skipped_so_that_a_second_stage_sees_others():
  load_more = lambda **options: [
    task.task_id
    for task in load_tasks(DataConfig('minicode2', options=options), ['train'])[
      'train'
    ]
  ]
  frozen, whole = load_more(), load_more(more=50)
  assert load_more(more=30, skip=20) == frozen + whole[len(frozen) + 20 :]
  hashes = [
    describe(DataConfig('minicode2', options=options))
    for options in ({'more': 30}, {'more': 30, 'skip': 20}, {'skip': 20}, {})
  ]
  assert len(set(hashes)) == 3 and hashes[2] == hashes[3]


@pytest.mark.parametrize(
  ('options', 'message'),
  [
    ({'more': 10**6}, 'more=1000000 after skip=0: expected 16000'),
    ({'more': 9000, 'skip': 9000}, 'more=9000 after skip=9000: expected'),
    ({'more': -1}, 'more=-1: expected 0 or more'),
    ({'skip': -1}, 'skip=-1: expected 0 or more'),
  ],
)
def test_problems_that_there_are_not_are_refused(options, message):
  config = DataConfig('minicode2', options=options)
  with pytest.raises(ValueError, match=message):
    load_tasks(config)
