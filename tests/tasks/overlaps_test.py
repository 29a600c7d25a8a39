"""Overlaps between splits: every kind on planted pairs, and the real sets."""

import dataclasses
import itertools
import os
import pathlib
import random
import time

import pytest

from promptrl_jax.tasks import mbpp, overlaps
from promptrl_jax.tasks.minicode.suite import SUITE
from promptrl_jax.testing import tiny

ROOT = pathlib.Path(__file__).parents[2]
DATA = pathlib.Path(
  os.environ.get('PROMPTRL_MBPP', ROOT / '../shared/data/mbpp/mbpp.jsonl')
)
needs_data = pytest.mark.skipif(
  not DATA.is_file(), reason='no MBPP file: set PROMPTRL_MBPP'
)
STATEMENT = 'Write a function to find all adverbs in a given sentence of words.'
TRAIN, OTHER = tiny.tasks(2, 'train')


def planted(**changes):
  task = dataclasses.replace(TRAIN, statement=STATEMENT)
  changes = {'task_id': 'test/0', 'tests': OTHER.tests} | changes
  copy = tiny.with_tests(task, changes.pop('tests'))
  copy = dataclasses.replace(copy, **changes)
  return {'train': [OTHER, task], 'test': [copy]}, copy


@pytest.mark.parametrize(
  ('changes', 'kind', 'similarity'),
  [
    ({'task_id': TRAIN.task_id, 'statement': 'Other.'}, 'task_id', 1.0),
    (
      {'statement': STATEMENT.upper() + '!', 'tests': TRAIN.tests},
      'same tests',
      1.0,
    ),
    ({'statement': f'{STATEMENT} '.replace(' ', ' \n')}, 'same statement', 1.0),
    ({'statement': f'{STATEMENT} Sort them.'}, 'near duplicate', 11 / 13),
  ],
)
def test_each_kind_of_overlap_is_found(changes, kind, similarity):
  parts, copy = planted(**changes)
  (overlap,) = overlaps.find_overlaps(parts).overlaps
  assert overlap.kind == kind
  assert overlap.splits == ('train', 'test')
  assert overlap.task_ids == (TRAIN.task_id, copy.task_id)
  assert overlap.similarity == pytest.approx(similarity)


@pytest.mark.parametrize('identify', [True, False])
@pytest.mark.parametrize(
  'changes',
  [
    {'task_id': TRAIN.task_id, 'statement': 'Other.'},
    {'tests': TRAIN.tests},
  ],
)
def test_a_task_in_two_splits_is_refused(changes, identify):
  parts, copy = planted(**changes)
  with pytest.raises(ValueError, match=f"{copy.task_id} of 'test' is also"):
    overlaps.check_no_leak(parts, identify)


@pytest.mark.parametrize('statement', [STATEMENT, f'{STATEMENT} Sort them.'])
def test_tasks_that_are_worded_alike_are_reported(statement):
  parts, _ = planted(statement=statement)
  report = overlaps.check_no_leak(parts)
  assert len(report.overlaps) == 1
  assert report.train_ids() == {TRAIN.task_id}
  assert not overlaps.check_no_leak(parts, False).overlaps


def test_few_shots_are_compared_and_keep_no_task_from_training():
  parts, copy = planted()
  report = overlaps.check_no_leak(
    {'few-shots': parts['test'], 'train': parts['train'], 'validation': []}
  )
  assert report.counts() == {(('few-shots', 'train'), 'same statement'): 1}
  assert not report.train_ids()
  report = overlaps.check_no_leak({'few-shots': [copy], 'test': parts['train']})
  assert len(report.overlaps) == 1


def test_a_shared_statement_is_kept_unless_its_training_task_is_left_out():
  parts, copy = planted()
  train, test = parts['train'], parts['test']
  kept = lambda parts: overlaps.check_no_leak(parts).kept_statements()
  assert not kept(parts)
  for others in ('few-shots', 'dev'):
    (pair,) = kept({others: test, 'train': train})
    assert pair.task_ids == (copy.task_id, TRAIN.task_id)
  (pair,) = kept({'validation': train, 'test': test})
  assert pair.kind == 'same statement'
  # The training task is left out because of the test task, so that its pair
  # with the example is none that is kept.
  shown = dataclasses.replace(copy, task_id='few-shots/0')
  shown = tiny.with_tests(shown, ['assert True'])
  (pair,) = kept({'few-shots': [shown], **parts})
  assert pair.splits == ('few-shots', 'test')


def test_near_duplicates_are_exactly_those_of_all_comparisons():
  rng = random.Random(0)
  texts = [
    ' '.join(rng.choices('abcd', k=rng.randint(0, 9))) for _ in range(300)
  ]
  first, second = texts[:150], texts[150:]

  def shingles(text):
    words = text.split()
    return {tuple(words[i : i + 3]) for i in range(max(1, len(words) - 2))}

  for threshold in (0.2, 0.5, 0.6, 0.8, 1.0):
    expected = {}
    for (i, a), (j, b) in itertools.product(
      enumerate(map(shingles, first)), enumerate(map(shingles, second))
    ):
      if len(a & b) / len(a | b) >= threshold:
        expected[i, j] = len(a & b) / len(a | b)
    assert len(expected) > 10
    found = overlaps.near_duplicates(first, second, threshold)
    assert found == pytest.approx(expected)


@pytest.mark.parametrize('threshold', [0.0, 1.1])
def test_a_threshold_outside_of_zero_to_one_is_refused(threshold):
  with pytest.raises(ValueError, match=f'threshold={threshold}'):
    overlaps.near_duplicates(['a'], ['b'], threshold)


def test_a_thousand_statements_are_compared_in_seconds():
  first = [t.statement for t in SUITE.load('train')][:1000]
  second = [t.statement for t in SUITE.load('train')][1000:2000]
  started = time.process_time()
  assert overlaps.near_duplicates(first, second)
  assert time.process_time() - started < 5  # 0.1 on a laptop.


@needs_data
def test_overlaps_of_the_official_mbpp():
  parts = {split: mbpp.load(split, str(DATA)) for split in mbpp.SPLITS}
  report = overlaps.check_no_leak(parts, mbpp.TASK_SET.statements_identify)
  assert report.counts() == {
    (('test', 'train'), 'same statement'): 3,
    (('test', 'train'), 'near duplicate'): 4,
    (('test', 'validation'), 'near duplicate'): 6,
    (('validation', 'train'), 'near duplicate'): 1,
  }
  assert report.train_ids() == {
    f'mbpp/{number}' for number in (602, 607, 653, 704, 731, 872, 928)
  }
