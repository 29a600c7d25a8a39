"""Data sets of PRewrite, on files with the hub's columns."""

import json

import datasets
import pytest

from promptrl_jax.tasks import instruction_sets, instructions
from promptrl_jax.tasks.mbpp import DataError

ROWS = {
  'ag_news': lambda i: {'text': f'Title {i}. Words.', 'label': i % 4},
  'sst2': lambda i: {'idx': i, 'sentence': f'fine {i}', 'label': i % 2},
  'nq': lambda i: {'question': f'who {i}', 'answer': [f'a{i}', f'b{i}']},
  'gsm8k': lambda i: {
    'question': f'How many {i}?',
    'answer': f'2 + {i}\n#### 1,00{i % 10}',
  },
}
ARTICLE = '{instruction}\nArticle: {input}'


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
  monkeypatch.setattr(datasets.config, 'HF_DATASETS_CACHE', tmp_path / 'cache')


def write(folder, name, count=25):
  source = instruction_sets.SETS[name]
  folder.mkdir()
  for split, start in ((source.train, 0), (source.test, 1000)):
    rows = [ROWS[name](start + i) for i in range(count)]
    text = ''.join(json.dumps(row) + '\n' for row in rows)
    (folder / f'{split}.jsonl').write_text(text)
  return str(folder)


@pytest.mark.parametrize(
  ('name', 'rows', 'sizes'),
  [
    ('ag_news', 120_000, (108_000, 12_000, 7_600)),
    ('sst2', 67_349, (60_614, 6_735, 872)),  # The paper counts 871 of 872.
    ('nq', 87_925, (79_168, 8_757, 3_610)),
    ('gsm8k', 7_473, (6_725, 748, 1_319)),
  ],
)
def test_split_sizes_of_the_official_data_are_those_of_the_paper(
  name, rows, sizes
):
  assert instruction_sets.SETS[name].sizes == sizes
  assert instruction_sets.split_sizes(name, rows) == sizes[:2]
  places = instruction_sets.dev_places(name, rows)
  assert len(places) == sizes[1]
  assert places == instruction_sets.dev_places(name, rows)


@pytest.mark.parametrize(
  ('split', 'official', 'size'),
  [
    ('test', 'test', '1319'),
    ('train', 'train', '7473'),
    ('dev', 'train', '7473'),
  ],
)
def test_a_folder_of_another_size_is_refused_with_both_sizes(
  tmp_path, split, official, size
):
  path = write(tmp_path / 'x', 'gsm8k')
  with pytest.raises(
    DataError, match=f"split '{official}' of .* has 25 rows, .* has {size}"
  ):
    instruction_sets.load('gsm8k', split, path)


def test_a_test_split_of_the_official_size_is_taken(tmp_path):
  path = write(tmp_path / 'x', 'sst2', 872)
  assert (
    len(instruction_sets.load('sst2', 'test', path).checker.examples) == 872
  )


@pytest.mark.parametrize('name', ROWS)
def test_dev_is_a_fixed_tenth_of_train_and_disjoint(tmp_path, name):
  path = write(tmp_path / name, name)
  splits = {
    split: instruction_sets.load(name, split, path, any_size=True)
    for split in instruction_sets.SPLITS
  }
  inputs = {
    split: {e.input for e in task.checker.examples}
    for split, task in splits.items()
  }
  assert [len(inputs[s]) for s in ('train', 'dev', 'test')] == [22, 3, 25]
  assert not inputs['train'] & inputs['dev']
  assert not inputs['test'] & (inputs['train'] | inputs['dev'])
  assert (
    instruction_sets.load(name, 'dev', path, any_size=True) == splits['dev']
  )
  assert len({task.task_id for task in splits.values()}) == 1


def test_prompts_and_outputs_are_those_of_each_set(tmp_path):
  seen = {}
  for name in ROWS:
    task = instruction_sets.load(
      name, 'test', write(tmp_path / name, name), any_size=True
    )
    checker, example = task.checker, task.checker.examples[1]
    prompt = instructions.prompt(checker, task.statement, example)
    seen[name] = prompt.split('\n')[1], example.outputs, checker.labels
  assert seen == {
    'ag_news': (
      'Article: Title 1001. Words.',
      ('Sports',),
      ('Business', 'Sci/Tech', 'Sports', 'World'),
    ),
    'sst2': ('Text: fine 1001', ('positive',), ('negative', 'positive')),
    'nq': ('Question: who 1001', ('a1001', 'b1001'), ()),
    'gsm8k': ('Question: How many 1001?', ('1,001',), ()),
  }


def test_other_columns_and_labels_are_refused_with_the_row(tmp_path):
  path = write(tmp_path / 'x', 'gsm8k')
  with pytest.raises(DataError, match=r"no column 'text'; there are question"):
    instruction_sets.load('ag_news', 'test', path, any_size=True)
  (tmp_path / 'y').mkdir()
  row = {'text': 'x', 'label': 7}
  (tmp_path / 'y' / 'test.jsonl').write_text(json.dumps(row))
  with pytest.raises(DataError, match='test:1: cannot be read'):
    instruction_sets.load('ag_news', 'test', str(tmp_path / 'y'), any_size=True)


def test_what_cannot_be_had_is_refused(tmp_path):
  with pytest.raises(DataError, match="'imdb': expected one of ag_news"):
    instruction_sets.load('imdb', 'dev')
  with pytest.raises(DataError, match="'valid': expected one of train"):
    instruction_sets.load('nq', 'valid')
  with pytest.raises(DataError, match='could not be loaded'):
    instruction_sets.load('nq', 'dev', str(tmp_path / 'none'))
